"""The threats of the paper's experiments."""

from collections.abc import Callable, Sequence

from holdfast.lab.config import Threat
from holdfast.lab.paper._plan import Variant
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

BIT_FLIP, ADDITIVE = "Bit flip", "Additive"
FEATURE_NOISE, IMPULSE = "Additive noise", "Impulse noise"
BACKDOOR = "Backdoor"

GROUPS = {
    BIT_FLIP: "Gradient attack",
    ADDITIVE: "Gradient attack",
    FEATURE_NOISE: "Feature attack",
    IMPULSE: "Feature attack",
    BACKDOOR: "Label attack",
}
"""The heading of each threat in the tables."""

CLEAN = Threat()


def threat(name: str, share: float, variant: Variant, *, deviation: float = 10.0) -> Threat:
    """A share ψ under the threat of this name in the paper's tables.

    As in the text, identities are redrawn at each step, and corruptions of features and labels hit samples wherever they are. As published, the same rows are bad throughout, draw the
    same noise at every step, their flipped gradients are 5 times as long, not 100, and corruptions hit all of their samples.

    Args:
        name: of the threat.
        share: in [0, 1]; nobody is bad at 0.
        variant: of the experiment.
        deviation: of the noise on gradients.
    """
    if share == 0:
        return CLEAN
    is_published = variant == "published"
    adversaries = Adversaries(bad_fraction=share, redrawn=not is_published)
    attacks: dict[str, Callable[[], Attack]] = {
        BIT_FLIP: lambda: ScaledFlip(factor=5.0 if is_published else 100.0),
        ADDITIVE: lambda: NoisyRows(deviation=deviation),
    }
    corruptions: dict[str, Callable[[], Corruption]] = {
        FEATURE_NOISE: GaussianNoise,
        IMPULSE: SaltAndPepper,
        BACKDOOR: lambda: WrongLabels(labels=8),
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
    """What the shares mean, in a sentence.

    Example:
        >>> who_is_bad([BIT_FLIP], [0.2, 0.4], 32, "paper")
        'Of 32 rows, 20% are 6, 40% are 13.'
        >>> who_is_bad([BIT_FLIP, BACKDOOR], [0.2], 32, "paper")
        'Of 32 rows, 20% are 6, under attacks on gradients; the others hit a share of all samples, in whatever row they are.'
    """
    hits_rows = {threat(name, 0.5, variant).hits_rows for name in names}
    listed = ", ".join(
        f"{share:.0%} are {Adversaries(bad_fraction=share).count(n_rows)}" for share in shares
    )
    if hits_rows == {True}:
        return f"Of {n_rows} rows, {listed}."
    if hits_rows == {False}:
        return "Bad are a share of all samples, in whatever row they are."
    return f"Of {n_rows} rows, {listed}, under attacks on gradients; the others hit a share of all samples, in whatever row they are."
