"""All recipes, and the studies of their plans."""

from holdfast.lab.config import hash_of
from holdfast.lab.paper._measured import MEASURED, TABLE_1
from holdfast.lab.paper._plan import Plan, Recipe, Size, Variant
from holdfast.lab.paper._training import TRAINED
from holdfast.lab.paper.measurements import measurements
from holdfast.lab.records import Study, config_hash

recipes: dict[str, Recipe] = {recipe.name: recipe for recipe in (TABLE_1, *TRAINED, *MEASURED)}
"""Every recipe by its name, in the order of a report."""


def study_of(
    recipe: Recipe, plan: Plan, variant: Variant, size: Size, n_seeds: int | None = None
) -> Study:
    """Return the study that a report reads.

    Args:
        recipe: the recipe of the plan.
        plan: runs and measurements.
        variant: variant of the plan.
        size: size of the plan.
        n_seeds: number of seeds, if it is not the recipe's own.
    """
    command = ["holdfast", "reproduce", recipe.name, "--size", size]
    command += [] if variant == "paper" else ["--variant", variant]
    command += [] if n_seeds is None else ["--seeds", str(n_seeds)]
    return Study(
        name=f"{recipe.name}-{variant}-{size}",
        recipe=recipe.name,
        variant=variant,
        size=size,
        title=plan.title,
        about=plan.about,
        note=plan.note,
        command=tuple(command),
        place=float(list(recipes).index(recipe.name)),
        runs={hash_of(config): labels for config, labels in plan.runs},
        measurements={
            config_hash(measurements.to_json(one)): labels for one, labels in plan.measured
        },
        paper=plan.paper,
    )
