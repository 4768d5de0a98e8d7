"""The paper's results without training: the toy example, corrupted images, Table 1, Lemma 2."""

from holdfast.lab.paper._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.paper.measurements import (
    BlockSpeedUp,
    BreakdownPoint,
    CorruptedImages,
    Measurement,
    RuleTime,
    ToyMedian,
)
from holdfast.lab.records import Labels

TOY_SHARES = (0.0, 0.1, 0.3, 0.45)

METHODS = {
    "SGD": ("mean", "0"),
    "CmD": ("coordinate-median", "1/2 - Ω(√(d/b))"),
    "GmD": ("geometric-median", "1/2"),
    "Data and Diggavi": ("resilience-filter(sigma=10.0)", "1/4"),
    "BGmD": ("bgmd", "1/2"),
    "Algorithm 1": ("bgmd-paper", "1/2"),
}
"""The rule and the paper's breakdown point of each method of Table 1.

The paper states the breakdown point of BGmD for its Algorithm 1.
"""

MORE_RULES = {
    "trimmed mean, n_bad = {n_bad}": "trimmed-mean(n_bad={n_bad})",
    "Krum, n_bad = {n_bad}": "krum(n_bad={n_bad})",
    "covariance filter": "covariance-filter",
}
"""Rules beside those of Table 1; some need the number of bad rows."""


def toy(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Plan the toy example: centers of points in the plane by three rules."""
    n_draws = {"smoke": 50, "quick": 1000, "full": 10000}[size]
    return Plan(
        title="The toy example: medians of points in the plane",
        about="100 points around (2, 2), a share of them with noise N(0, 100); "
        f"errors over {n_draws:,} draws.",
        measured=tuple(
            (ToyMedian(bad_fraction=share, n_draws=n_draws, seed=seeds[0]), {"share": share})
            for share in TOY_SHARES
        ),
    )


def images(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Plan images under every corruption of features."""
    return Plan(
        title="Feature corruption: images before and after",
        about="Fashion-MNIST; noise N(0, 100), salt and pepper on 90 % of the pixels, "
        "Gaussian blur of 5 pixels.",
        measured=((CorruptedImages(n=2 if size == "smoke" else 5, seed=seeds[0]), {}),),
    )


def table1(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Plan Table 1: time over n at one d, over d at one n, and the breakdown point."""
    ns, ds = {
        "smoke": ((4, 8), (256, 1024)),
        "quick": ((8, 16, 32, 64, 128), (131072, 524288, 2097152, 8388608)),
        "full": ((8, 16, 32, 64, 128, 256, 512), (131072, 524288, 2097152, 8388608, 33554432)),
    }[size]
    fixed_n, fixed_d = (8, 256) if size == "smoke" else (16, 524288)
    n, width = (10, 100) if size == "smoke" else (20, 1000)
    rules = {label: rule for label, (rule, _) in METHODS.items()}
    others = {
        label.format(n_bad=(n - 3) // 2): text.format(n_bad=(n - 3) // 2)
        for label, text in MORE_RULES.items()
    }
    measured: dict[Measurement, Labels] = {
        BreakdownPoint(rule=rule, n=n, d=width, seed=seeds[0]): {"method": label}
        for label, rule in (rules | others).items()
    }
    shapes = ([(some, fixed_d) for some in ns], [(fixed_n, some) for some in ds])
    measured |= {
        RuleTime(rule=rule, n=n, d=d): {"method": label, "n": n, "d": d}
        for pairs in shapes
        for label, rule in rules.items()
        for n, d in pairs
    }
    return Plan(
        title="Table 1 measured: time over n and d, and breakdown points",
        about="Times on rows of noise around (1, ..., 1), the least of several; "
        f"breakdown with {n} rows of {width:,} columns.",
        measured=tuple(measured.items()),
        paper=tuple({"method": label, "breakdown": text} for label, (_, text) in METHODS.items()),
    )


def speed_up(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Plan Lemma 2: speed-up of the median of a block over k."""
    fractions = (0.1, 1.0) if size == "smoke" else (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    d = {"smoke": 2048, "quick": 262144, "full": 1163978}[size]
    return Plan(
        title="Lemma 2 measured: speed-up over k",
        about=f"32 rows of {d:,} columns, a fifth of them bad; time of the median of all columns "
        "over that of choosing a block and its median.",
        measured=tuple(
            (BlockSpeedUp(fraction=some, d=d), {"fraction": some}) for some in fractions
        ),
    )


ONCE: dict[Size, int] = {"smoke": 1, "quick": 1, "full": 1}

TABLE_1, *MEASURED = (
    Recipe(name, title, plan, ONCE, ("paper",))
    for name, title, plan in (
        ("table1", "time of each rule over n and d, and its breakdown point", table1),
        ("toy", "the geometric median in the plane at 0, 10, 30 and 45 % corruption", toy),
        ("images", "images under every corruption of features", images),
        ("speed-up", "Lemma 2: how much a block saves, over k", speed_up),
    )
)
