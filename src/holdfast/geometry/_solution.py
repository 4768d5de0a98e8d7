"""The result of a solver, and why it stopped."""

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Outcome(Enum):
    """Why a solver stopped; the value is the sentence for the user."""

    CLOSED_FORM = "computed in closed form"
    EXACT = "a row is the exact optimum"
    CERTIFIED = "certified to the requested gap"
    FINISHED = "ran all steps of its definition"
    BOUND_NOT_MET = (
        "the rows do not meet the stated bound; the last set holding half of them is used"
    )
    STALLED = "floating point allows no further progress; the best iterate is returned"
    OUT_OF_STEPS = "ran out of steps; the best iterate is returned"


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
