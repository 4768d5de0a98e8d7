"""The result of a solver, and why it stopped."""

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Outcome(Enum):
    """Why a solver stopped, from the best to the worst; the value is the sentence for the user."""

    CLOSED_FORM = "computed in closed form"
    EXACT = "a row is the exact optimum"
    CERTIFIED = "certified to the requested gap"
    FINISHED = "ran all steps of its definition"
    BOUND_NOT_MET = (
        "the rows do not meet the stated bound; the last set holding half of them is used"
    )
    STALLED = "floating point allows no further progress; the best iterate is returned"
    OUT_OF_STEPS = "ran out of steps; the best iterate is returned"

    @property
    def rank(self) -> int:
        """The position in this list, for the worst of several outcomes."""
        return list(Outcome).index(self)


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights of a combination of points, and how they were found.

    Attributes:
        weights: [n] coefficients of the rows, float64 on the CPU.
        outcome: why the solver stopped.
        steps: number of iterations.
        gap: upper bound on the distance of the objective from its optimum, relative to the solver's
            stated scale, at the vector that `Rows.combine` returns for the weights; 0 if exact,
            None if the solver has no objective. Always finite.
        reference_weight: coefficient of the reference vector, for rules that start from one.
        rejected: bool [n] rows that the rule left out; None for those of weight zero.
    """

    weights: Tensor
    outcome: Outcome = Outcome.CLOSED_FORM
    steps: int = 0
    gap: float | None = None
    reference_weight: float = 0.0
    rejected: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Solutions:
    """Weights for many sets of rows, and where they can be relied on.

    Attributes:
        weights: [t, n] coefficients of the rows of each set, float64 on the CPU.
        is_certain: bool [t] whether the set is solved; the others must be solved one by one.
        outcome: why the solver stopped, for the worst of the solved sets.
        steps: the largest number of iterations.
        gaps: [t] as `Solution.gap`; None if the solver has no objective.
        rejected: bool [t, n] rows that the rule left out; None for those of weight zero.
        exact: bool [t] sets whose sums should be taken in float64; None for none.
    """

    weights: Tensor
    is_certain: Tensor
    outcome: Outcome = Outcome.CLOSED_FORM
    steps: int = 0
    gaps: Tensor | None = None
    rejected: Tensor | None = None
    exact: Tensor | None = None

    @property
    def left_out(self) -> Tensor:
        """Bool [t, n] the rows of each set that the rule left out."""
        return self.weights == 0 if self.rejected is None else self.rejected
