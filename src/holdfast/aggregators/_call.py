"""The keyword arguments of a call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import torch
from torch import Tensor

from holdfast._typing import Score
from holdfast.checks import (
    as_tensor,
    check_finite_weight,
    check_generator,
    check_row_weights,
    check_vector,
    failure,
    shape_of,
)

# Names of the arguments, for what rules accept and need.
NOTHING: frozenset[str] = frozenset()
ROW_WEIGHTS = frozenset({"row_weights"})
REFERENCE = frozenset({"reference"})
SCORE = frozenset({"score"})
GENERATOR = frozenset({"generator"})


class StepArguments(TypedDict, total=False):
    """Keyword arguments of a step for rules that accept them.

    Attributes:
        row_weights: [n] weights of the rows. The share of bad rows is then a share of the weight.
        reference: [d] a trusted or previous direction.
        score: rates a direction on trusted data; larger is better.
    """

    row_weights: Tensor | None
    reference: Tensor | None
    score: Score | None


class CallArguments(StepArguments, total=False):
    """Keyword arguments of a rule.

    Attributes:
        generator: source of random numbers; a step passes its own.
    """

    generator: torch.Generator | None


@dataclass(frozen=True, eq=False)
class CallContext:
    """The arguments of a call as a rule sees them; see :class:`CallArguments`.

    Once checked, row_weights are [n] float64 on the CPU with sum 1, or None for equal weights.
    """

    row_weights: Tensor | None = None
    reference: Tensor | None = None
    score: Score | None = None
    generator: torch.Generator | None = None

    def checked(self, rule: Any, n: int, d: int) -> "CallContext":
        """The context, after checking its arguments for n rows of d columns."""
        for name, value in vars(self).items():
            if value is None and name in rule.needs:
                raise failure(name, f"be given to {rule}", None)
            if value is not None and name not in rule.takes:
                raise ValueError(f"`{name}` is not accepted by {rule}.")
        if self.score is not None and not callable(self.score):
            raise failure("score", "be a function of a direction", type(self.score).__name__)
        if self.generator is not None:
            check_generator(self.generator)
        reference, weights = as_tensor(self.reference), as_tensor(self.row_weights)
        if reference is not None:
            check_vector("reference", reference, d)
        if weights is not None:
            weights = _none_if_equal(check_row_weights(weights, n))
        return replace(self, reference=reference, row_weights=weights)

    @property
    def references(self) -> Sequence[Tensor]:
        """The reference, if there is one."""
        return () if self.reference is None else (self.reference,)

    def for_rows(self, indices: Tensor) -> "CallContext":
        """The same for the rows at `indices`, whose weights are normalized to the sum 1."""
        if self.row_weights is None or len(indices) == len(self.row_weights):
            return self
        left = self.row_weights[indices]
        check_finite_weight(float(left.sum()))
        return replace(self, row_weights=_none_if_equal(left / left.sum()))

    def weights_of(self, n: int) -> Tensor:
        """[n] the row weights; equal ones if none were given."""
        if self.row_weights is None:
            return torch.full((n,), 1.0 / n, dtype=torch.float64)
        return self.row_weights


def _none_if_equal(weights: Tensor) -> Tensor | None:
    """None for equal weights, so that they give the same bits as no weights."""
    return None if bool((weights == weights[0]).all()) else weights


def check_grams(grams: object) -> int:
    """Check for a finite tensor [t, n, n] with squared norms on the diagonals; return n."""
    is_floating = isinstance(grams, Tensor) and grams.is_floating_point()
    if not isinstance(grams, Tensor) or not is_floating or grams.ndim != 3:
        raise failure("grams", "be a floating tensor [t, n, n]", shape_of(grams))
    if grams.shape[1] != grams.shape[2] or grams.shape[1] == 0:
        raise failure("grams", "have as many rows as columns, at least 1", tuple(grams.shape))
    # A sum is finite only if all entries are; only an overflow must be told from these.
    if not bool(torch.isfinite(grams.sum())) and not bool(torch.isfinite(grams).all()):
        raise failure("grams", "be finite", "NaN or infinity")
    if bool((grams.diagonal(dim1=1, dim2=2) < 0).any()):
        raise failure("grams", "have squared norms on their diagonals", "a negative entry")
    return grams.shape[1]
