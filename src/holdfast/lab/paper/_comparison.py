"""The methods and threats that the paper compares, and the figures of its tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from holdfast.lab.config import Config, Threat, parse_rule
from holdfast.lab.paper._plan import Variant
from holdfast.lab.records import Labels
from holdfast.threats import (
    Adversaries,
    Attack,
    Corruption,
    GaussianNoise,
    NoisyRows,
    SaltAndPepper,
    ScaledFlip,
    WrongLabels,
)

SGD, CMD, GMD, BGMD = "SGD", "CmD", "GmD", "BGmD"
ALGORITHM_1 = "Algorithm 1"
PUBLISHED = "published BGmD"
FILTERED = "BGmD, filter"

RULES = {
    SGD: "mean",
    CMD: "coordinate-median",
    GMD: "geometric-median",
    BGMD: "bgmd",
    ALGORITHM_1: "bgmd-paper",
    PUBLISHED: "bgmd-published",
    FILTERED: "bgmd(rule='sketched | covariance-filter')",
}
"""The rule of each method.

BGmD aggregates, then delivers; Algorithm 1 selects, then aggregates, with the mean as memory, as
printed. The filter replaces the median by the covariance filter.
"""

MEANINGS = {
    SGD: "mean of all rows",
    CMD: "coordinate-wise median",
    GMD: "geometric median",
    BGMD: "block coordinate geometric median descent",
    ALGORITHM_1: "BGmD as the paper prints it",
    PUBLISHED: "BGmD as in the runs published with the paper",
    FILTERED: "BGmD around the covariance filter",
}
"""What the names of the methods stand for."""

PAPER_COLUMN = {ALGORITHM_1: BGMD, PUBLISHED: BGMD}
"""The paper's column that a method is compared with, where the names differ."""

CLEAN_ROW = "Clean"
BIT_FLIP, ADDITIVE = "Bit flip", "Additive"
FEATURE_NOISE, IMPULSE = "Additive noise", "Impulse noise"
BACKDOOR = "Backdoor"

GRADIENT_ATTACK = "Gradient attack"
GROUPS = {
    CLEAN_ROW: "",
    BIT_FLIP: GRADIENT_ATTACK,
    ADDITIVE: GRADIENT_ATTACK,
    FEATURE_NOISE: "Feature attack",
    IMPULSE: "Feature attack",
    BACKDOOR: "Label attack",
}
"""The heading of each line of the tables, by its threat."""

URGENT = ("", GRADIENT_ATTACK)
"""Headings whose lines are run first."""

CLEAN = Threat()

Cell = tuple[float, float] | None
"""Percentage and half-width of its interval; None for an empty cell."""


def _row(sgd: Cell, cmd: Cell, bgmd: Cell, gmd: Cell) -> dict[str, Cell]:
    """Take cells in the order of the paper's columns."""
    return {SGD: sgd, CMD: cmd, BGMD: bgmd, GMD: gmd}


PAPER_CELLS: dict[str, dict[tuple[str, float], dict[str, Cell]]] = {
    "table2": {
        (CLEAN_ROW, 0.0): _row((89.39, 0.28), (83.82, 0.26), (89.25, 0.19), (88.98, 0.3)),
        (BIT_FLIP, 0.2): _row(None, (84.20, 0.02), (88.42, 0.16), (88.07, 0.05)),
        (BIT_FLIP, 0.4): _row(None, (82.33, 1.60), (85.67, 0.09), (85.57, 0.09)),
        (ADDITIVE, 0.2): _row(None, (72.55, 0.16), (87.87, 0.33), (87.24, 0.16)),
        (ADDITIVE, 0.4): _row(None, (41.04, 1.13), (88.29, 0.01), (83.89, 0.08)),
        (FEATURE_NOISE, 0.2): _row(None, (82.38, 0.13), (86.76, 0.03), (86.63, 0.04)),
        (FEATURE_NOISE, 0.4): _row(None, (78.54, 0.65), (82.27, 0.06), (81.23, 0.03)),
        (IMPULSE, 0.2): _row((79.18, 6.47), (82.59, 0.60), (86.91, 0.36), (86.23, 0.03)),
        # BGmD repeats CmD in the paper.
        (IMPULSE, 0.4): _row(None, (78.03, 0.73), (78.03, 0.73), (81.41, 0.12)),
        (BACKDOOR, 0.2): _row((86.99, 0.02), (76.38, 0.13), (88.97, 0.10), (88.26, 0.04)),
        (BACKDOOR, 0.4): _row((73.01, 0.68), (60.85, 1.24), (84.69, 0.31), (81.32, 0.16)),
    },
    "table3": {
        (CLEAN_ROW, 0.0): _row((99.27, 0.01), (98.83, 0.02), (99.09, 0.05), (99.24, 0.02)),
        (BIT_FLIP, 0.2): _row((9.51, 1.77), (98.79, 0.01), (99.06, 0.02), (98.98, 0.01)),
        (BIT_FLIP, 0.4): _row((9.60, 2.04), (93.69, 0.09), (97.89, 0.05), (98.11, 0.12)),
        (ADDITIVE, 0.2): _row((9.68, 0.11), (94.26, 0.03), (98.61, 0.01), (98.69, 0.01)),
        (ADDITIVE, 0.4): _row((9.74, 0.12), (91.86, 0.03), (97.78, 0.27), (92.78, 0.04)),
    },
    "table4": {
        (CLEAN_ROW, 0.0): _row((82.29, 1.32), (85.50, 1.43), (84.82, 0.76), (85.65, 0.48)),
        (BIT_FLIP, 0.2): _row(None, (80.87, 0.21), (84.56, 0.06), (88.07, 0.05)),
        (BIT_FLIP, 0.4): _row(None, (77.41, 1.04), (82.66, 0.31), (80.81, 0.01)),
        (ADDITIVE, 0.2): _row((20.7, 1.56), (54.75, 0.38), (83.84, 0.12), (82.40, 0.90)),
        (ADDITIVE, 0.4): _row(None, (23.35, 6.13), (82.79, 0.68), (79.46, 0.24)),
    },
}
"""Table, line and column to the paper's figures."""


def methods(variant: Variant) -> list[str]:
    """Return the columns of a table.

    These are the paper's four, then its own algorithm as printed or as published, then the filter.
    """
    return [SGD, CMD, GMD, BGMD, ALGORITHM_1 if variant == "paper" else PUBLISHED, FILTERED]


def paper_figures(table: str, variant: Variant) -> Iterator[Labels]:
    """Yield the figures of one of the paper's tables; `mean` is None where its cell is empty."""
    for (what, share), cells in PAPER_CELLS[table].items():
        for method in methods(variant):
            column = PAPER_COLUMN.get(method, method)
            if column in cells:
                mean, interval = cells[column] or (None, None)
                labels = {"threat": what, "share": share, "method": method}
                yield labels | {"mean": mean, "interval": interval}


def run_of(
    base: Config, rule: str, seed: int, *, threat: Threat = CLEAN, memory: str | None = None
) -> Config:
    """Return `base` with this rule, threat and seed."""
    is_exact = base.optimizer.is_plain and not base.schedule.goes_to_zero
    parts = parse_rule(rule, memory=memory, is_exact=is_exact)
    return replace(base, **parts, threat=threat, seed=seed)


def threat_of(name: str, share: float, variant: Variant, *, deviation: float = 10.0) -> Threat:
    """Return the threat of this name in the paper's tables.

    In the text, identities are redrawn at each step, and corruptions of features and labels hit
    samples of any row. As published, the same rows are bad in every step with the same noise, their
    gradients are flipped with factor 5 instead of 100, and corruptions hit all of their samples.

    Args:
        name: name of the threat.
        share: share ψ in [0, 1] of bad rows or samples; none are bad at 0.
        variant: variant of the experiment.
        deviation: standard deviation of the noise on gradients.
    """
    if share == 0:
        return CLEAN
    is_published = variant == "published"
    adversaries = Adversaries(bad_fraction=share, redrawn=not is_published)
    attacks: dict[str, Attack] = {
        BIT_FLIP: ScaledFlip(factor=5.0 if is_published else 100.0),
        ADDITIVE: NoisyRows(deviation=deviation),
    }
    corruptions: dict[str, Corruption] = {
        FEATURE_NOISE: GaussianNoise(),
        IMPULSE: SaltAndPepper(),
        BACKDOOR: WrongLabels(labels=8),
    }
    return Threat(
        attack=attacks.get(name),
        corruption=corruptions.get(name),
        adversaries=adversaries,
        whole_rows=is_published and name in corruptions,
        repeats=is_published,
    )


def who_is_bad(names: Sequence[str], shares: Sequence[float], n_rows: int, variant: Variant) -> str:
    """Return a sentence that says what the shares mean.

    Example:
        >>> who_is_bad([BIT_FLIP], [0.2, 0.4], 32, "paper")
        'Of 32 rows, 20% are 6, 40% are 13.'
        >>> who_is_bad([BACKDOOR], [0.2], 32, "paper")
        'A share of all samples is bad, in any row.'
    """
    hits_rows = {threat_of(name, 0.5, variant).hits_rows for name in names}
    if hits_rows == {False}:
        return "A share of all samples is bad, in any row."
    counts = {share: Adversaries(bad_fraction=share).count(n_rows) for share in shares}
    listed = ", ".join(f"{share:.0%} are {count}" for share, count in counts.items())
    if hits_rows == {True}:
        return f"Of {n_rows} rows, {listed}."
    others = "other threats hit a share of all samples, in any row"
    return f"Of {n_rows} rows, {listed}, under attacks on gradients; {others}."
