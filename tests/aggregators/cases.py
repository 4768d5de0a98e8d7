"""All rules, with the traits that each lacks by its nature and the reason."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator, rules
from holdfast.seeds import stream
from tests.samples import gaussian, redundant

N = 15
"""Rows in every contract: enough for Bulyan with three bad rows, and whole groups of three."""


def nothing(honest: Tensor) -> dict[str, Any]:
    return {}


def trusted(honest: Tensor) -> dict[str, Any]:
    """A trusted gradient that is longer than the rows."""
    return {"reference": 2 * honest.double().mean(0).to(honest)}


def previous(honest: Tensor) -> dict[str, Any]:
    """A previous direction near the honest rows."""
    mean, deviation = honest.double().mean(0), honest.double().std(0, correction=0)
    return {"reference": mean.to(honest) + 0.1 * deviation.to(honest)}


def descent(honest: Tensor) -> dict[str, Any]:
    """The descent of a trusted loss: the squared distance from the honest mean."""
    mean = honest.double().mean(0)

    def score(direction: Tensor) -> float:
        return float(mean.square().sum() - (mean - direction.double()).square().sum())

    return {"score": score}


def shuffled(honest: Tensor) -> dict[str, Any]:
    return {"generator": stream(0, "shuffled")}


@dataclass(frozen=True)
class Case:
    text: str
    lacks: Mapping[str, str] = field(default_factory=dict)
    rows: Callable[..., Tensor] = gaussian
    extras: Callable[[Tensor], dict[str, Any]] = nothing

    @property
    def rule(self) -> Aggregator:
        return rules.parse(self.text)

    def __str__(self) -> str:
        return self.text

    def call(self, rows: Tensor, honest: Tensor | None = None) -> Tensor:
        return self.rule.aggregate(rows, **self.extras(rows if honest is None else honest)).vector


FROM_ORIGIN = "measures norms from the origin, which does not move with the rows"
LENGTHS = "scales a sketch to lengths, which are taken from the origin"
FIXED_RADIUS = "compares lengths with a fixed radius"
FIXED_SIGMA = "compares variances with a fixed bound"

OWN_ROW = "the order of rows names the row that is trusted"
DRAWN = "holds only in law"
BY_PARAMETER = "tiles end where a parameter ends, so that a list of parameters has other tiles"

CASES = [
    Case("mean", {"breakdown": "one row moves a mean anywhere"}),
    Case("coordinate-median"),
    Case("trimmed-mean(n_bad=7)"),
    Case("trimmed-mean(n_bad=2)"),
    Case("trimmed-mean(bad_fraction=0.3)"),
    Case("mean-around-median(n_bad=7)"),
    Case("mean-around-median(n_bad=3)"),
    Case("mean-around-median(bad_fraction=0.3)"),
    Case("geometric-median"),
    Case("medoid"),
    Case("krum(n_bad=6)"),
    Case("krum(bad_fraction=0.4)"),
    Case("multi-krum(n_bad=6)"),
    Case("multi-krum(n_bad=4, n_selected=11)"),
    Case("multi-krum(bad_fraction=0.2, n_selected=12)"),
    Case("krum(n_bad=9, relaxed=true)"),
    Case("bulyan(n_bad=3)"),
    Case("bulyan(bad_fraction=0.2)"),
    Case("minimum-diameter(n_bad=4)"),
    Case("minimum-diameter(bad_fraction=0.2)"),
    Case("minimum-variance(n_bad=4)"),
    Case("minimum-variance(bad_fraction=0.2)"),
    Case("neighbor-mean(n_bad=4, index=13)", {"permutation": OWN_ROW}),
    Case("neighbor-mean(bad_fraction=0.4, index=13)", {"permutation": OWN_ROW}),
    Case(
        "centered-clipping(radius=10.0)",
        {"translation": "starts from a fixed point", "scale": FIXED_RADIUS},
    ),
    Case("centered-clipping(radius=3.0)", {"scale": FIXED_RADIUS}, extras=previous),
    Case("norm-filter(n_bad=7)", {"translation": FROM_ORIGIN}),
    Case("norm-filter(bad_fraction=0.2)", {"translation": FROM_ORIGIN}),
    Case("norm-trim(bad_fraction=0.2)", {"translation": FROM_ORIGIN}),
    Case("spectral-filter(n_bad=7)"),
    Case("spectral-filter(bad_fraction=0.4)"),
    Case("spectral-filter(n_bad=5, sigma=1.5)", {"scale": FIXED_SIGMA}),
    Case("resilience-filter(sigma=1.2)", {"scale": FIXED_SIGMA}),
    Case("covariance-filter"),
    Case("covariance-filter(n_bad=4)"),
    Case("covariance-filter(bad_fraction=0.3)"),
    Case("radius-filter"),
    Case("radius-filter(radius=2.0)", {"scale": FIXED_RADIUS}),
    Case(
        "majority-vote(group_size=3)",
        {"permutation": "the order of rows makes the groups"},
        rows=redundant,
    ),
    Case(
        "sign-majority",
        {
            "translation": "a shift changes signs",
            "scale": "magnitudes are lost by design",
            "consensus": "returns signs, not rows",
        },
    ),
    Case(
        "zeno(n_bad=7, penalty=0.1)",
        {"translation": "penalizes the norm, which is taken from the origin"},
        extras=descent,
    ),
    Case("zeno(bad_fraction=0.45)", extras=descent),
    Case(
        "trusted-reference",
        {
            "translation": "angles are taken at the origin",
            "consensus": "returns rows at the reference's length",
        },
        extras=trusted,
    ),
    Case("mixing(n_bad=7) | geometric-median"),
    Case("mixing(n_bad=6) | krum(n_bad=6)"),
    Case("mixing(bad_fraction=0.4) | krum(bad_fraction=0.4)"),
    Case("mixing(n_bad=4) | trimmed-mean(n_bad=4)"),
    Case(
        "bucketing(bucket_size=2) | geometric-median",
        {"permutation": DRAWN},
        extras=shuffled,
    ),
    Case(
        "bucketing(bucket_size=2) | coordinate-median",
        {"permutation": DRAWN},
        extras=shuffled,
    ),
    Case(
        "sketched(fraction=0.5) | geometric-median",
        {"translation": LENGTHS},
        extras=shuffled,
    ),
    Case(
        "sketched(fraction=0.5) | covariance-filter",
        {"translation": LENGTHS, "digits": LENGTHS},
        extras=shuffled,
    ),
    Case("blockwise(tile=4) | geometric-median", {"any storage": BY_PARAMETER}),
    Case("blockwise | geometric-median", {"any storage": BY_PARAMETER}),
    Case("blockwise(tile=4) | radius-filter"),
    Case("blockwise(tile='parameter') | covariance-filter", {"any storage": BY_PARAMETER}),
    Case("blockwise(tile=4) | mixing(n_bad=6) | krum(n_bad=6)", {"any storage": BY_PARAMETER}),
    Case("blockwise(tile=4) | mean", {"breakdown": "one row moves a mean anywhere"}),
    Case(
        "blockwise(tile=4) | bucketing(bucket_size=2) | geometric-median",
        {"permutation": DRAWN, "any storage": BY_PARAMETER},
        extras=shuffled,
    ),
    Case("clipping(n_bad=7) | mixing(n_bad=7) | geometric-median", {"translation": FROM_ORIGIN}),
    Case("clipping(n_bad=4) | coordinate-median", {"translation": FROM_ORIGIN}),
    Case("clipping(bad_fraction=0.3) | coordinate-median", {"translation": FROM_ORIGIN}),
    Case(
        "clipping(radius=2.5) | geometric-median",
        {"translation": FROM_ORIGIN, "scale": FIXED_RADIUS, "consensus": FIXED_RADIUS},
    ),
]

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Allowed difference, relative to the rows; the solver's own tolerance is 1e-6 of the objective."""

VALUES = {
    "bad_fraction": 0.2,
    "bucket_size": 2,
    "group_size": 3,
    "n_bad": 1,
    "radius": 1.0,
    "sigma": 1.0,
}
"""Values for arguments that a rule needs."""


def shortest_text(name: str) -> str:
    """The rule of this short name with no more arguments than it needs, around the mean."""
    known: Any = fields(rules[name])  # type: ignore[arg-type]
    needed = [field.name for field in known if field.default is MISSING]
    if "n_bad" in getattr(rules[name], "one_of", ()):
        needed = ["n_bad", *needed]
    listed = ", ".join(f"{one}={VALUES[one]}" for one in needed if one != "rule")
    text = f"{name}({listed})" if listed else name
    return f"{text} | mean" if "rule" in needed else text
