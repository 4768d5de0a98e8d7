"""The figures about k: with and without memory, and the relative residual for a large and a tiny model. All without corruption."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from holdfast.lab.config import Config
from holdfast.lab.recipes._methods import rule_parts
from holdfast.lab.recipes._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.recipes._settings import describe, mnist
from holdfast.lab.recipes._tables import hashes
from holdfast.records.views import CurvePanel, Curves, Line, Metric, Point, PointLine, PointPanel, Points

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
"""k over d."""

SEEDS: dict[Size, int] = {"smoke": 1, "quick": 1, "full": 5}

MEMORY: dict[Variant, str] = {
    "paper": "BGmD with the robust memory; no row is bad.",
    "published": "BGmD as published, with a memory for each row; no row is bad.",
}

Runs = Mapping[float, tuple[Config, ...]]


def choice_of_k(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Final accuracy over k, with the memory and without."""
    base = mnist(variant, size)
    ways = {"with memory": _runs(base, variant, seeds), "without memory": _runs(base, variant, seeds, memory="none")}
    order = [runs[fraction][i] for i in range(len(seeds)) for fraction in FRACTIONS for runs in ways.values()]
    points = tuple(
        PointLine(label=way, points=tuple(Point(x=fraction, runs=hashes(runs[fraction])) for fraction in FRACTIONS))
        for way, runs in ways.items()
    )
    return Plan(
        title="Choice of k and the role of memory",
        about=f"{describe(base)} {MEMORY[variant]}",
        configs=tuple(order),
        views=(
            Points(
                title="Final accuracy over the size of the block",
                x_label="k / d",
                x_scale="log",
                y="accuracy",
                panels=(PointPanel(title="BGmD", lines=points),),
            ),
            Curves(
                title="Test accuracy over the steps",
                x="step",
                y="accuracy",
                panels=tuple(CurvePanel(title=way, lines=_lines(runs)) for way, runs in ways.items()),
            ),
        ),
    )


def residual(model: str, title: str, variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Relative residual, test accuracy and training loss over the steps, a line for each k."""
    base = mnist(variant, size, model)
    runs = _runs(base, variant, seeds)

    def curves(name: str, y: Metric) -> Curves:
        return Curves(title=name, x="step", y=y, panels=(CurvePanel(title="", lines=_lines(runs)),))

    return Plan(
        title=f"Relative residual, accuracy and loss over k: {title}",
        about=f"{describe(base)} {MEMORY[variant]}",
        configs=tuple(runs[fraction][i] for i in range(len(seeds)) for fraction in FRACTIONS),
        views=(
            curves("Relative residual, 1 - ξ", "residual"),
            curves("Test accuracy", "accuracy"),
            curves("Training loss", "loss"),
        ),
    )


def _runs(base: Config, variant: Variant, seeds: Seeds, *, memory: str | None = None) -> Runs:
    name = "bgmd" if variant == "paper" else "bgmd-published"
    return {
        fraction: tuple(
            replace(base, **rule_parts(f"{name}(fraction={fraction})", base.optimizer, base.schedule, memory=memory), seed=seed)
            for seed in seeds
        )
        for fraction in FRACTIONS
    }


def _lines(runs: Runs) -> tuple[Line, ...]:
    return tuple(Line(label=f"k = {fraction:.0%} of d", runs=hashes(some)) for fraction, some in runs.items())


BLOCK_SIZES = (
    Recipe(name="choice-of-k", title="final accuracy over k, with and without memory", n_seeds=SEEDS, plan=choice_of_k),
    Recipe(
        name="large-model",
        title="relative residual, accuracy and loss over k for 1,163,978 parameters",
        n_seeds=SEEDS,
        plan=partial(residual, "lenet", "large model"),
    ),
    Recipe(
        name="tiny-model",
        title="relative residual, accuracy and loss over k for 412 parameters",
        n_seeds=SEEDS,
        plan=partial(residual, "tiny-cnn", "tiny model"),
    ),
)
