"""The figures of accuracy against wall-clock time, for corrupted features, gradients and labels at 0, 10, 20 and 40 %."""

from functools import partial

from holdfast.lab.config import Config
from holdfast.lab.paper._corruptions import BACKDOOR, BIT_FLIP, IMPULSE, threat, who_is_bad
from holdfast.lab.paper._methods import FILTERED, methods
from holdfast.lab.paper._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.paper._settings import describe, fashion_mnist
from holdfast.lab.paper._tables import SEEDS, hashes, with_method
from holdfast.lab.records.views import (
    CurvePanel,
    Curves,
    Line,
    Point,
    PointLine,
    PointPanel,
    Points,
    TimeSplit,
)

SHARES = (0.0, 0.1, 0.2, 0.4)


def wall_clock(what: str, variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """All methods under one threat at four shares; the runs at 0, 20 and 40 % are those of Table 2."""
    base = fashion_mnist(variant, size)
    names = [method for method in methods(variant) if method != FILTERED]
    cells: dict[tuple[float, str], tuple[Config, ...]] = {
        (share, method): tuple(
            with_method(base, method, seed, threat(what, share, variant)) for seed in seeds
        )
        for share in SHARES
        for method in names
    }
    order = [cells[key][i] for i in range(len(seeds)) for key in cells]
    panels = tuple(
        CurvePanel(
            title=f"{share:.0%} corruption" if share else "No corruption",
            lines=tuple(Line(label=method, runs=hashes(cells[share, method])) for method in names),
        )
        for share in SHARES
    )
    lines = tuple(
        PointLine(
            label=method,
            points=tuple(Point(x=share, runs=hashes(cells[share, method])) for share in SHARES),
        )
        for method in names
    )
    return Plan(
        title=f"Accuracy against time: {what.lower()}",
        about=f"{describe(base)} {who_is_bad([what], SHARES[1:], base.n_rows, variant)}",
        configs=tuple(order),
        views=(
            Curves(
                title="Test accuracy over training time",
                note="Time is the number of steps times what a step takes, which is the sum of the medians of its parts, without evaluations and without what the attackers do.",
                x="seconds",
                y="accuracy",
                panels=panels,
            ),
            Curves(title="Test accuracy over the steps", x="step", y="accuracy", panels=panels),
            Points(
                title="Breakdown: final accuracy over the corrupted share",
                x_label="corrupted share",
                y="accuracy",
                panels=(PointPanel(title=what, lines=lines),),
            ),
            TimeSplit(
                title="What a step spends its time on, at 40 %",
                lines=tuple(
                    Line(label=method, runs=hashes(cells[SHARES[-1], method])) for method in names
                ),
            ),
        ),
    )


FIGURES = tuple(
    Recipe(
        name=name,
        title=f"accuracy against time, {what.lower()} at 0, 10, 20 and 40 %",
        n_seeds=SEEDS,
        plan=partial(wall_clock, what),
    )
    for name, what in (
        ("feature-corruption", IMPULSE),
        ("gradient-corruption", BIT_FLIP),
        ("label-corruption", BACKDOOR),
    )
)
