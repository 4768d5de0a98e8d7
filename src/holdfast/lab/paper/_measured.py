"""What the paper shows without training: the toy example, corrupted images, Table 1 and Lemma 2."""

from collections.abc import Callable, Iterable, Sequence

from holdfast.lab.paper._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.paper.measurements import (
    BlockSpeedUp,
    BreakdownPoint,
    CorruptedImages,
    Measurement,
    RuleTime,
    ToyMedian,
    measurements,
)
from holdfast.lab.records import config_hash
from holdfast.lab.records.views import (
    Measured,
    MeasuredLine,
    MeasuredPanel,
    MeasuredPoint,
    MeasuredValue,
    Pictures,
    Scatter,
    ScatterPanel,
    ValueRow,
    ValueTable,
)

TOY_SHARES = (0.0, 0.1, 0.3, 0.45)

METHODS = {
    "SGD": ("mean", "0"),
    "CmD": ("coordinate-median", "1/2 - Ω(√(d/b))"),
    "GmD": ("geometric-median", "1/2"),
    "Data and Diggavi": ("resilience-filter(sigma=10.0)", "1/4"),
    "BGmD": ("bgmd", "1/2"),
    "Algorithm 1": ("bgmd-paper", "1/2"),
}
"""The methods of Table 1: the rule here, and the breakdown point there. What the paper says of BGmD, it says of its Algorithm 1."""

MORE_RULES = {
    "trimmed mean, told {n_bad}": "trimmed-mean(n_bad={n_bad})",
    "Krum, told {n_bad}": "krum(n_bad={n_bad})",
    "covariance filter": "covariance-filter",
}
"""Beside them, those that one may have instead; some must be told how many rows are bad."""

ONCE: dict[Size, int] = {"smoke": 1, "quick": 1, "full": 1}


def hash_of_measurement(measurement: Measurement) -> str:
    """By which a view refers to it."""
    return config_hash(measurements.to_json(measurement))


def toy(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Where three rules put the centre of points in the plane."""
    n_draws = {"smoke": 50, "quick": 1000, "full": 10000}[size]
    clouds = {
        share: ToyMedian(bad_fraction=share, n_draws=n_draws, seed=seeds[0]) for share in TOY_SHARES
    }
    values = ("mean", "coordinate median", "geometric median")
    return Plan(
        title="The toy example: medians of points in the plane",
        about=f"100 points around (2, 2), a share of them with noise N(0, 100) on them; errors over {n_draws:,} draws.",
        measurements=tuple(clouds.values()),
        views=(
            Scatter(
                title="Where each rule puts the centre",
                panels=tuple(
                    ScatterPanel(
                        title=f"{share:.0%} corruption" if share else "Clean data",
                        measurement=hash_of_measurement(cloud),
                    )
                    for share, cloud in clouds.items()
                ),
            ),
            ValueTable(
                title="Root mean square distance from the true centre",
                columns=values,
                rows=tuple(
                    ValueRow(
                        label=f"{share:.0%} corruption" if share else "Clean data",
                        cells=tuple(
                            MeasuredValue(
                                measurement=hash_of_measurement(cloud), value=f"errors.{value}"
                            )
                            for value in values
                        ),
                    )
                    for share, cloud in clouds.items()
                ),
            ),
        ),
    )


def images(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """What corruption of features does to images."""
    measurement = CorruptedImages(n=2 if size == "smoke" else 5, seed=seeds[0])
    return Plan(
        title="Feature corruption: images before and after",
        about="Fashion-MNIST; noise N(0, 100), salt and pepper on 90 % of the pixels, Gaussian blur of 5 pixels.",
        measurements=(measurement,),
        views=(
            Pictures(
                title="The same images under every corruption",
                measurement=hash_of_measurement(measurement),
            ),
        ),
    )


def table1(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Table 1 measured: time over n and over d, and the breakdown point."""
    ns, ds = {
        "smoke": ((4, 8), (256, 1024)),
        "quick": ((8, 16, 32, 64, 128), (131072, 524288, 2097152, 8388608)),
        "full": ((8, 16, 32, 64, 128, 256, 512), (131072, 524288, 2097152, 8388608, 33554432)),
    }[size]
    fixed_n, fixed_d = (8, 256) if size == "smoke" else (16, 524288)
    rules = {label: rule for label, (rule, _) in METHODS.items()}
    over_n = {
        (label, n): RuleTime(rule=rule, n=n, d=fixed_d) for label, rule in rules.items() for n in ns
    }
    over_d = {
        (label, d): RuleTime(rule=rule, n=fixed_n, d=d) for label, rule in rules.items() for d in ds
    }
    n, width = (10, 100) if size == "smoke" else (20, 1000)
    others = {
        label.format(n_bad=(n - 3) // 2): text.format(n_bad=(n - 3) // 2)
        for label, text in MORE_RULES.items()
    }
    points = {
        label: BreakdownPoint(rule=rule, n=n, d=width, seed=seeds[0])
        for label, rule in (rules | others).items()
    }
    shown = {label: paper for label, (_, paper) in METHODS.items()}
    return Plan(
        title="Table 1 measured: time over n and d, and breakdown points",
        about=f"Times on rows of noise around (1, ..., 1), the least of several; breakdown with {n} rows of {width:,} columns.",
        measurements=tuple(dict.fromkeys([*points.values(), *over_n.values(), *over_d.values()])),
        views=(
            Measured(
                title="Time of a step",
                note="The number behind a name is the exponent that fits best: 1 is linear, as all of them should be in d.",
                panels=(
                    _times(f"over n, at d = {fixed_d:,}", "rows n", rules, over_n, ns),
                    _times(f"over d, at n = {fixed_n}", "columns d", rules, over_d, ds),
                ),
            ),
            ValueTable(
                title="Time of a step, in means of the same rows",
                columns=tuple(f"{fixed_n} x {d:,}" for d in ds),
                rows=tuple(
                    ValueRow(
                        label=label,
                        cells=tuple(
                            MeasuredValue(
                                measurement=hash_of_measurement(over_d[label, d]), value="means"
                            )
                            for d in ds
                        ),
                    )
                    for label in rules
                ),
            ),
            ValueTable(
                title="The smallest share of bad rows that breaks the rule under one attack",
                note="Bad rows are one hundred million deviations away, all at one place, and redrawn for ten steps. Another attack may break a rule with fewer.",
                columns=("measured", "the paper"),
                rows=tuple(
                    ValueRow(
                        label=label,
                        cells=(
                            MeasuredValue(
                                measurement=hash_of_measurement(point), value="breakdown"
                            ),
                            MeasuredValue(text=shown.get(label, "")),
                        ),
                    )
                    for label, point in points.items()
                ),
            ),
        ),
    )


def speed_up(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Lemma 2 measured: how much faster a median of a block is, over k."""
    fractions = (0.1, 1.0) if size == "smoke" else (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    d = {"smoke": 2048, "quick": 262144, "full": 1163978}[size]
    found = {fraction: BlockSpeedUp(fraction=fraction, d=d) for fraction in fractions}
    lines = {"Weiszfeld on rows (Lemma 2)": "weiszfeld", "this library's solver": "holdfast"}
    return Plan(
        title="Lemma 2 measured: speed-up over k",
        about=f"32 rows of {d:,} columns, a fifth of them bad; time of a median of all columns over that of choosing a block and its median.",
        measurements=tuple(found.values()),
        views=(
            Measured(
                title="Speed-up of a block over all columns",
                panels=(
                    MeasuredPanel(
                        title="",
                        x_label="k / d",
                        y_label="speed-up F",
                        x_scale="log",
                        y_scale="log",
                        lines=tuple(
                            MeasuredLine(
                                label=label,
                                points=tuple(
                                    MeasuredPoint(
                                        x=fraction,
                                        measurement=hash_of_measurement(one),
                                        value=value,
                                    )
                                    for fraction, one in found.items()
                                ),
                            )
                            for label, value in lines.items()
                        ),
                    ),
                ),
            ),
        ),
    )


def _times(
    title: str,
    x_label: str,
    labels: Iterable[str],
    found: dict[tuple[str, int], RuleTime],
    places: Sequence[int],
) -> MeasuredPanel:
    return MeasuredPanel(
        title=title,
        x_label=x_label,
        y_label="seconds",
        x_scale="log",
        y_scale="log",
        lines=tuple(
            MeasuredLine(
                label=label,
                points=tuple(
                    MeasuredPoint(
                        x=x, measurement=hash_of_measurement(found[label, x]), value="seconds"
                    )
                    for x in places
                ),
            )
            for label in labels
        ),
    )


def _recipe(name: str, title: str, plan: Callable[[Variant, Size, Seeds], Plan]) -> Recipe:
    return Recipe(name=name, title=title, variants=("paper",), n_seeds=ONCE, plan=plan)


TABLE_1 = _recipe("table1", "time of each rule over n and d, and its breakdown point", table1)

MEASURED = (
    _recipe("toy", "the geometric median in the plane at 0, 10, 30 and 45 % corruption", toy),
    _recipe("images", "images under every corruption of features", images),
    _recipe("speed-up", "Lemma 2: how much a block saves, over k", speed_up),
)
