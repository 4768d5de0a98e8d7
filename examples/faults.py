"""Gross faults of rows, and what a rule does with them: shared by the experiments in this
folder.
"""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.geometry import DenseRows, least
from holdfast.robust_step import StepResult
from holdfast.seeds import stream
from holdfast.threats import (
    Adversaries,
    Attack,
    AttackContext,
    IeeeBitFlips,
    NoisyRows,
    NonFinite,
    ScaledFlip,
)


@final
@dataclass(frozen=True, kw_only=True)
class Scaled(Attack):
    """The own gradient times a factor, as after a lost division by the number of workers."""

    name = "scaled"
    aim = "Length of the mean."

    factor: float = 50.0

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.own * self.factor


FAULTS: dict[str, Attack] = {
    "times -100": ScaledFlip(factor=100.0),
    "times 50": Scaled(factor=50.0),
    "noise": NoisyRows(deviation=10.0),
    "NaN": NonFinite(),
    "bit flips": IeeeBitFlips(),
}
NONE = "none"


class Accidents:
    """Spoils a share of the rows, other ones at each step, and counts what the rule left out."""

    def __init__(self, fault: str, share: float, seed: int) -> None:
        self._fault = FAULTS.get(fault)
        self._adversaries = Adversaries(bad_fraction=share)
        # Streams of their own: runs with other faults draw the same identities.
        self._identities, self._noise = stream(seed, "identities"), stream(seed, "fault")
        self._mask = torch.zeros(0, dtype=torch.bool)
        self._counts = torch.zeros(2, 2, dtype=torch.int64)  # honest and bad, used and left out
        self._ratios: list[float] = []

    def spoiled(self, rows: DenseRows) -> DenseRows:
        """The rows with the fault in those that are bad at this step."""
        self._mask = self._adversaries.draw(rows.n, generator=self._identities)
        if self._fault is None:
            return rows
        return self._fault(rows, self._mask, generator=self._noise)

    def absent(self, rows: DenseRows) -> DenseRows:
        """The rows without those that are bad at this step."""
        mask = self._adversaries.draw(rows.n, generator=self._identities)
        return rows.keep((~mask).nonzero()[:, 0])

    def watch(self, rows: DenseRows, result: StepResult) -> None:
        """Count rejected rows, and measure how far out the honest ones are."""
        for is_bad in (False, True):
            rejected = result.rejected[self._mask == is_bad]
            self._counts[int(is_bad)] += torch.stack([(~rejected).sum(), rejected.sum()])
        self._ratios.append(largest_ratio(rows, ~self._mask))

    def figures(self) -> dict[str, Any]:
        """What goes to the record: counts of rows, the largest ratio and its step."""
        (_, honest_rejected), (bad_missed, _) = self._counts.tolist()
        n_honest, n_bad = self._counts.sum(1).tolist()
        ratio = max(self._ratios)
        return {
            "honest": n_honest,
            "honest_rejected": honest_rejected,
            "bad": n_bad,
            "bad_missed": bad_missed,
            "ratio": round(ratio, 3),
            "ratio_step": self._ratios.index(ratio),
        }


def largest_ratio(rows: DenseRows, honest: Tensor) -> float:
    """The largest distance of an honest row from the vector median, in majority radii.

    The radius filter leaves out the rows whose ratio is above its reach.
    """
    gram = rows.gram()
    # A row is within its own majority, so a majority of n needs n // 2 others.
    radii = gram.distances.sort(1).values[:, gram.n // 2]
    center = least(radii, gram.distances.sum(1))
    return float((gram.distances[center] / radii[center])[honest[gram.kept]].max())
