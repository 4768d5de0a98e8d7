"""What every aggregation rule is: a checked call from rows to one vector."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from holdfast._typing import Score, TensorOrTensors
from holdfast.checks import (
    check_enough_rows,
    check_finite_weight,
    check_generator,
    check_row_weights,
    check_vector,
    failure,
)
from holdfast.geometry import DenseRows, Outcome, Rows

# What a call may bring beside the rows, as sets of argument names.
NOTHING: frozenset[str] = frozenset()
ROW_WEIGHTS = frozenset({"row_weights"})
REFERENCE = frozenset({"reference"})
SCORE = frozenset({"score"})
GENERATOR = frozenset({"generator"})


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What a rule made of the rows.

    Attributes:
        vector: [d] the aggregate, with the rows' dtype and device.
        weights: [n] coefficients of the rows in it (float64, CPU), or None where it is no combination of rows.
        rejected: bool [n] (CPU) rows that had no part in it: not finite, or left out by the rule.
        outcome: why the solver stopped.
        gap: certified relative distance from the optimum; None for rules that do not optimise.
        steps: iterations that the solver made.
        reference_weight: coefficient of the call's `reference` in the vector, for rules that start from one.
    """

    vector: Tensor
    weights: Tensor | None
    rejected: Tensor
    outcome: Outcome = Outcome.CLOSED_FORM
    gap: float | None = None
    steps: int = 0
    reference_weight: float = 0.0


@dataclass(frozen=True, eq=False)
class Given:
    """What came with the call beside the rows, checked.

    row_weights: [n] float64 on the CPU with sum 1, or None for equal weights.
    """

    row_weights: Tensor | None = None
    reference: Tensor | None = None
    score: Score | None = None
    generator: torch.Generator | None = None

    @property
    def references(self) -> Sequence[Tensor]:
        return () if self.reference is None else (self.reference,)

    def for_rows(self, indices: Tensor) -> "Given":
        """The same for the rows at `indices` alone: their weights are scaled to the sum 1 again."""
        if self.row_weights is None:
            return self
        left = self.row_weights[indices]
        check_finite_weight(float(left.sum()))
        return replace(self, row_weights=_none_if_equal(left / left.sum()))

    def weights_of(self, n: int) -> Tensor:
        """[n] the row weights, equal ones if none were given."""
        return (
            torch.full((n,), 1.0 / n, dtype=torch.float64)
            if self.row_weights is None
            else self.row_weights
        )


class Aggregator(ABC):
    """A rule that turns rows [n, d] into one vector [d].

    Rules are immutable: the object is its configuration. A rule never changes its input, keeps dtype and device, gives
    non-finite rows no weight, and draws random numbers only from the generator it is handed.
    """

    name: ClassVar[str]
    """The short name, as in `"krum(n_bad=2)"`."""

    reads_order: ClassVar[bool] = False
    """Whether the order of rows has a meaning to the rule, so that nothing before it may mix them."""

    @property
    def reads_columns(self) -> bool:
        """Whether the rule looks at single coordinates: then a sketch, which keeps inner products alone, cannot serve it."""
        return False

    @property
    @abstractmethod
    def n_needed(self) -> int:
        """The smallest number of rows the rule is defined for."""

    def n_resisted(self, n: int) -> int:
        """The largest number of arbitrarily bad rows among `n` that cannot carry the result away."""
        return self._n_resisted(n) if n >= self.n_needed else 0

    @abstractmethod
    def _n_resisted(self, n: int) -> int:
        """The same for an `n` that the rule is defined for."""

    @property
    def takes(self) -> frozenset[str]:
        """Which of `row_weights`, `reference`, `score` and `generator` the call may bring; none, unless a rule says so."""
        return NOTHING

    @property
    def needs(self) -> frozenset[str]:
        """Which of these the call must bring; none, unless a rule says so."""
        return NOTHING

    @property
    @abstractmethod
    def reads_products(self) -> bool:
        """Whether the rule looks at inner products of rows, so that a wrapper before it should have them ready."""

    @abstractmethod
    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        """The rule itself, on checked arguments."""

    def __call__(
        self,
        rows: Rows | TensorOrTensors,
        *,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The vector [d]; see :meth:`aggregate`."""
        return self.aggregate(
            rows, row_weights=row_weights, reference=reference, score=score, generator=generator
        ).vector

    @torch.no_grad()
    def aggregate(
        self,
        rows: Rows | TensorOrTensors,
        *,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
        generator: torch.Generator | None = None,
    ) -> Aggregate:
        """The vector with an account of how it came about.

        Args:
            rows: [n, d] tensor, list of [n, ...] tensors (one per parameter), or any `Rows`.
            row_weights: [n] how much each row counts. The share of bad rows is then counted in weight.
            reference: [d] a trusted or previous direction.
            score: judges a direction on trusted data, larger is better.
            generator: source of random numbers.
        """
        rows = rows if isinstance(rows, Rows) else DenseRows(rows)
        given = self._check(rows, row_weights, reference, score, generator)
        with torch.autocast(
            rows.device.type, enabled=False
        ):  # half precision would round inner products to three digits
            if given.row_weights is None or bool((given.row_weights > 0).all()):
                return self._aggregate(rows, given)
            used = torch.nonzero(given.row_weights)[:, 0]
            check_enough_rows(len(used), self.n_needed, self)
            return _spread(self._aggregate(rows.keep(used), given.for_rows(used)), used, rows.n)

    def _check(
        self,
        rows: Rows,
        row_weights: Tensor | None,
        reference: Tensor | None,
        score: Score | None,
        generator: torch.Generator | None,
    ) -> Given:
        check_enough_rows(rows.n, self.n_needed, self)
        brought = {
            "row_weights": row_weights,
            "reference": reference,
            "score": score,
            "generator": generator,
        }
        for argument, value in brought.items():
            if value is None and argument in self.needs:
                raise failure(argument, f"be given to {self!r}", None)
            if value is not None and argument not in self.takes:
                raise failure(
                    argument,
                    f"be left out, because {self!r} has no use for it",
                    type(value).__name__,
                )
        if reference is not None:
            check_vector("reference", reference, rows.d)
        if score is not None and not callable(score):
            raise failure("score", "be a function of a direction", type(score).__name__)
        if generator is not None:
            check_generator(generator)
        weights = (
            None if row_weights is None else _none_if_equal(check_row_weights(row_weights, rows.n))
        )
        return Given(weights, reference, score, generator)


def _none_if_equal(weights: Tensor) -> Tensor | None:
    """Equal weights are no weights, to the last bit."""
    return None if bool((weights == weights[0]).all()) else weights


def _spread(aggregate: Aggregate, used: Tensor, n: int) -> Aggregate:
    """The aggregate of the rows at `used`, told in terms of all n rows."""
    rejected = torch.ones(n, dtype=torch.bool)
    rejected[used] = aggregate.rejected
    weights = None
    if aggregate.weights is not None:
        weights = torch.zeros(n, dtype=torch.float64)
        weights[used] = aggregate.weights
    return replace(aggregate, weights=weights, rejected=rejected)


def one_hot(index: int, n: int) -> Tensor:
    """[n] all weight on one row."""
    return equal_weights(torch.tensor([index]), n)


def equal_weights(indices: Tensor, n: int) -> Tensor:
    """[n] equal weights on the rows at `indices`."""
    return torch.zeros(n, dtype=torch.float64).index_fill_(0, indices, 1.0 / len(indices))
