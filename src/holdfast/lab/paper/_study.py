"""The study that a recipe's plan is."""

from holdfast.lab.paper._plan import Plan, Recipe, Size, Variant
from holdfast.lab.paper._recipes import recipes
from holdfast.lab.records import Study


def study_of(
    recipe: Recipe, plan: Plan, variant: Variant, size: Size, n_seeds: int | None = None
) -> Study:
    """What the report has to know of a plan.

    Args:
        recipe: whose plan it is.
        plan: which runs and measurements there are, and how they are shown.
        variant: for which it was made.
        size: for which it was made.
        n_seeds: if others than the recipe's own were asked for.
    """
    command = ["holdfast", "reproduce", recipe.name, "--size", size]
    command += [] if variant == "paper" else ["--variant", variant]
    command += [] if n_seeds is None else ["--seeds", str(n_seeds)]
    return Study(
        name=f"{recipe.name}-{variant}-{size}",
        title=plan.title,
        about=plan.about,
        command=tuple(command),
        views=plan.views,
        place=float(list(recipes).index(recipe.name)),
    )
