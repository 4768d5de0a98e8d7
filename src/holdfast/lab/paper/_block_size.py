"""The figures about k: with and without memory, and the relative residual for a large and a tiny model. All without corruption."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from holdfast.lab.config import Config
from holdfast.lab.paper._methods import ALGORITHM_1, BGMD, PUBLISHED, RULES, rule_parts
from holdfast.lab.paper._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.paper._settings import describe, mnist
from holdfast.lab.paper._tables import hashes
from holdfast.lab.records.views import (
    CurvePanel,
    Curves,
    Line,
    Metric,
    Point,
    PointLine,
    PointPanel,
    Points,
)

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
"""k over d."""

SEEDS: dict[Size, int] = {"smoke": 1, "quick": 1, "full": 5}

STEPS: dict[Variant, tuple[str, ...]] = {"paper": (ALGORITHM_1, BGMD), "published": (PUBLISHED,)}
"""Whose blocks they are. The paper's figures are of its Algorithm 1; where no row is bad, nothing speaks against its memory."""

Runs = Mapping[float, tuple[Config, ...]]


def choice_of_k(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Final accuracy over k, with the memory and without."""
    base = mnist(variant, size)
    ways = {
        step: {
            "with memory": _runs(base, step, seeds),
            "without memory": _runs(base, step, seeds, memory="none"),
        }
        for step in STEPS[variant]
    }
    every = [runs for some in ways.values() for runs in some.values()]
    return Plan(
        title="Choice of k and the role of memory",
        about=f"{describe(base)} No row is bad.",
        configs=tuple(
            runs[fraction][i] for i in range(len(seeds)) for fraction in FRACTIONS for runs in every
        ),
        views=(
            Points(
                title="Final accuracy over the size of the block",
                x_label="k / d",
                x_scale="log",
                y="accuracy",
                panels=tuple(
                    PointPanel(
                        title=step,
                        lines=tuple(_point_line(way, runs) for way, runs in some.items()),
                    )
                    for step, some in ways.items()
                ),
            ),
            Curves(
                title="Test accuracy over the steps",
                x="step",
                y="accuracy",
                panels=tuple(
                    CurvePanel(title=f"{step}, {way}", lines=_lines(runs))
                    for step, some in ways.items()
                    for way, runs in some.items()
                ),
            ),
        ),
    )


def residual(model: str, title: str, variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Relative residual, test accuracy and training loss over the steps, a line for each k."""
    base = mnist(variant, size, model)
    found = {step: _runs(base, step, seeds) for step in STEPS[variant]}

    def curves(name: str, y: Metric) -> Curves:
        panels = tuple(CurvePanel(title=step, lines=_lines(runs)) for step, runs in found.items())
        return Curves(title=name, x="step", y=y, panels=panels)

    return Plan(
        title=f"Relative residual, accuracy and loss over k: {title}",
        about=f"{describe(base)} No row is bad.",
        configs=tuple(
            runs[fraction][i]
            for i in range(len(seeds))
            for fraction in FRACTIONS
            for runs in found.values()
        ),
        views=(
            curves("Relative residual, 1 - ξ", "residual"),
            curves("Test accuracy", "accuracy"),
            curves("Training loss", "loss"),
        ),
    )


def _runs(base: Config, step: str, seeds: Seeds, *, memory: str | None = None) -> Runs:
    return {
        fraction: tuple(
            replace(
                base,
                **rule_parts(
                    f"{RULES[step]}(fraction={fraction})",
                    base.optimizer,
                    base.schedule,
                    memory=memory,
                ),
                seed=seed,
            )
            for seed in seeds
        )
        for fraction in FRACTIONS
    }


def _point_line(label: str, runs: Runs) -> PointLine:
    return PointLine(
        label=label,
        points=tuple(Point(x=fraction, runs=hashes(some)) for fraction, some in runs.items()),
    )


def _lines(runs: Runs) -> tuple[Line, ...]:
    return tuple(
        Line(label=f"k = {fraction:.0%} of d", runs=hashes(some)) for fraction, some in runs.items()
    )


BLOCK_SIZES = (
    Recipe(
        name="choice-of-k",
        title="final accuracy over k, with and without memory",
        n_seeds=SEEDS,
        plan=choice_of_k,
    ),
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
