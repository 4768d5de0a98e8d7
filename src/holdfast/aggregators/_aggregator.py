"""The base of all rules: a checked call from rows to one vector."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

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

# Arguments that a call may pass besides the rows.
NOTHING: frozenset[str] = frozenset()
ROW_WEIGHTS = frozenset({"row_weights"})
REFERENCE = frozenset({"reference"})
SCORE = frozenset({"score"})
GENERATOR = frozenset({"generator"})


@dataclass(frozen=True, eq=False)
class Aggregate:
    """The result of a rule.

    Attributes:
        vector: [d] the aggregate, with the rows' dtype and device.
        weights: [n] coefficients of the rows in it (float64, CPU), or None if it is not a
            combination of rows.
        rejected: bool [n] (CPU) rows without influence: not finite, or left out by the rule.
        outcome: why the solver stopped.
        gap: certified relative distance from the optimum; None for rules that do not optimize.
        steps: number of iterations of the solver.
        reference_weight: coefficient of the call's `reference` in the vector, for rules that start
            from one.
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
    """The arguments of a call besides the rows.

    Once checked, row_weights are [n] float64 on the CPU with sum 1, or None for equal weights.
    """

    row_weights: Tensor | None = None
    reference: Tensor | None = None
    score: Score | None = None
    generator: torch.Generator | None = None

    @property
    def references(self) -> Sequence[Tensor]:
        return () if self.reference is None else (self.reference,)

    def for_rows(self, indices: Tensor) -> "Given":
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


class Aggregator(ABC):
    """A rule that turns rows [n, d] into one vector [d].

    Rules are immutable: the object is its configuration. A rule does not change its input, keeps
    dtype and device, gives non-finite rows no weight, and draws random numbers only from the
    generator of the call.
    """

    name: ClassVar[str]
    """The short name, as in `"krum(n_bad=2)"`."""

    reads_order: ClassVar[bool] = False
    """Whether the result depends on the order of rows, so that wrappers must not mix them."""

    @property
    def reads_columns(self) -> bool:
        """Whether the rule reads single coordinates, which a sketch of the rows cannot offer."""
        return False

    @property
    @abstractmethod
    def n_needed(self) -> int:
        """The number of rows from which on the rule is defined."""

    def n_resisted(self, n: int) -> int:
        """The largest number of arbitrarily bad rows among `n` that leaves the result bounded."""
        return self._n_resisted(n) if n >= self.n_needed else 0

    @abstractmethod
    def _n_resisted(self, n: int) -> int:
        """The same for an `n` that the rule is defined for."""

    @property
    def takes(self) -> frozenset[str]:
        """The arguments among `row_weights`, `reference`, `score`, `generator` that it accepts."""
        return NOTHING

    @property
    def needs(self) -> frozenset[str]:
        """Those of the accepted arguments that every call must pass."""
        return NOTHING

    @property
    @abstractmethod
    def reads_products(self) -> bool:
        """Whether the rule reads inner products of rows, so that a wrapper should measure them."""

    @abstractmethod
    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        """The rule itself, on checked arguments."""

    def __str__(self) -> str:
        """The class with the arguments that are not at their default, for messages."""
        known: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        values = [(field, getattr(self, field.name)) for field in known]
        shown = [f"{field.name}={value}" for field, value in values if value != field.default]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __call__(
        self,
        rows: Rows | TensorOrTensors,
        *,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the vector [d]; see :meth:`aggregate`."""
        vector = self.aggregate(
            rows, row_weights=row_weights, reference=reference, score=score, generator=generator
        ).vector
        if isinstance(rows, Rows) or not torch.is_grad_enabled():
            return vector
        tensors = [rows] if isinstance(rows, Tensor) else list(rows)
        if not any(tensor.requires_grad for tensor in tensors):
            return vector
        return self._differentiable(vector, tensors, row_weights)

    def _differentiable(
        self, vector: Tensor, tensors: Sequence[Tensor], row_weights: Tensor | None
    ) -> Tensor:
        """The result of a call as a function of the `tensors` [n, ...], if the rule has a gradient.

        Other rules return the vector without a graph.
        """
        return vector

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
        """Return the vector with its weights, the rejected rows and the solver's outcome.

        Args:
            rows: [n, d] tensor, list of [n, ...] tensors (one per parameter), or any `Rows`.
            row_weights: [n] how much each row counts. The share of bad rows is then counted in
                weight.
            reference: [d] a trusted or previous direction.
            score: rates a direction on trusted data; larger is better.
            generator: source of random numbers.
        """
        rows = rows if isinstance(rows, Rows) else DenseRows(rows)
        given = self._check(rows, Given(row_weights, reference, score, generator))
        # Autocast would round inner products to the three digits of half precision.
        with torch.autocast(rows.device.type, enabled=False):
            if given.row_weights is None or bool((given.row_weights > 0).all()):
                return self._aggregate(rows, given)
            used = torch.nonzero(given.row_weights)[:, 0]
            check_enough_rows(len(used), self.n_needed, self)
            return _spread(self._aggregate(rows.keep(used), given.for_rows(used)), used, rows.n)

    def _check(self, rows: Rows, given: Given) -> Given:
        check_enough_rows(rows.n, self.n_needed, self)
        for argument, value in vars(given).items():
            if value is None and argument in self.needs:
                raise failure(argument, f"be given to {self}", None)
            if value is not None and argument not in self.takes:
                raise ValueError(f"`{argument}` is not accepted by {self}.")
        if given.reference is not None:
            check_vector("reference", given.reference, rows.d)
        if given.score is not None and not callable(given.score):
            raise failure("score", "be a function of a direction", type(given.score).__name__)
        if given.generator is not None:
            check_generator(given.generator)
        if given.row_weights is None:
            return given
        weights = check_row_weights(given.row_weights, rows.n)
        return replace(given, row_weights=_none_if_equal(weights))


def _none_if_equal(weights: Tensor) -> Tensor | None:
    """None for equal weights, so that they give the same bits as no weights."""
    return None if bool((weights == weights[0]).all()) else weights


def _spread(aggregate: Aggregate, used: Tensor, n: int) -> Aggregate:
    """The aggregate of the rows at `used`, in terms of all n rows."""
    rejected = torch.ones(n, dtype=torch.bool)
    rejected[used] = aggregate.rejected
    weights = None
    if aggregate.weights is not None:
        weights = torch.zeros(n, dtype=torch.float64)
        weights[used] = aggregate.weights
    return replace(aggregate, weights=weights, rejected=rejected)


def one_hot(index: int, n: int) -> Tensor:
    """[n] weights that are 1 for one row and 0 for the others (float64, CPU)."""
    return equal_weights(torch.tensor([index]), n)


def equal_weights(indices: Tensor, n: int) -> Tensor:
    """[n] equal weights with sum 1 on the rows at `indices` (float64, CPU)."""
    return torch.zeros(n, dtype=torch.float64).index_fill_(0, indices, 1.0 / len(indices))
