"""The methods and threats that the paper compares."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.lab.config import Config, Threat, parse_rule
from holdfast.lab.paper._plan import Variant
from holdfast.threats import (
    AdditiveNoise,
    Adversaries,
    Attack,
    Corruption,
    GaussianNoise,
    SaltAndPepper,
    ScaledFlip,
    TargetLabel,
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
    FILTERED: "bgmd(aggregator='covariance-filter')",
}
"""The rule of each method.

BGmD has the robust memory and Algorithm 1 the averaged one, as printed; the filter replaces the
median by the covariance filter.
"""

PAPER_COLUMN = {ALGORITHM_1: BGMD, PUBLISHED: BGMD}
"""The paper's column that a method is compared with, where the names differ."""

CLEAN_ROW = "Clean"
BIT_FLIP, ADDITIVE = "Bit flip", "Additive"
FEATURE_NOISE, IMPULSE = "Additive noise", "Impulse noise"
BACKDOOR = "Backdoor"

GRADIENT_ATTACK = "Gradient attack"
GROUPS = {
    BIT_FLIP: GRADIENT_ATTACK,
    ADDITIVE: GRADIENT_ATTACK,
    FEATURE_NOISE: "Feature attack",
    IMPULSE: "Feature attack",
    BACKDOOR: "Label attack",
}
"""The heading of each threat in the tables."""

CLEAN = Threat()


def methods(variant: Variant) -> list[str]:
    """Return the columns of a table.

    These are the paper's four, then its own algorithm as printed or as published, then the filter.
    """
    return [SGD, CMD, GMD, BGMD, ALGORITHM_1 if variant == "paper" else PUBLISHED, FILTERED]


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
    attacks: dict[str, Callable[[], Attack]] = {
        BIT_FLIP: lambda: ScaledFlip(factor=5.0 if is_published else 100.0),
        ADDITIVE: lambda: AdditiveNoise(deviation=deviation),
    }
    corruptions: dict[str, Callable[[], Corruption]] = {
        FEATURE_NOISE: GaussianNoise,
        IMPULSE: SaltAndPepper,
        BACKDOOR: TargetLabel,
    }
    if name in attacks:
        return Threat(attack=attacks[name](), adversaries=adversaries, repeats=is_published)
    return Threat(
        corruption=corruptions[name](),
        adversaries=adversaries,
        whole_rows=is_published,
        repeats=is_published,
    )


def who_is_bad(names: Sequence[str], shares: Sequence[float], n_rows: int, variant: Variant) -> str:
    """Return a sentence that says what the shares mean.

    Example:
        >>> who_is_bad([BIT_FLIP], [0.2, 0.4], 32, "paper")
        'Of 32 rows, 20% are 6, 40% are 13.'
        >>> who_is_bad([BACKDOOR], [0.2], 32, "paper")
        'Bad are a share of all samples, in whatever row they are.'
    """
    hits_rows = {threat_of(name, 0.5, variant).hits_rows for name in names}
    if hits_rows == {False}:
        return "Bad are a share of all samples, in whatever row they are."
    counts = {share: Adversaries(bad_fraction=share).count(n_rows) for share in shares}
    listed = ", ".join(f"{share:.0%} are {count}" for share, count in counts.items())
    if hits_rows == {True}:
        return f"Of {n_rows} rows, {listed}."
    others = "the others hit a share of all samples, in whatever row they are"
    return f"Of {n_rows} rows, {listed}, under attacks on gradients; {others}."
