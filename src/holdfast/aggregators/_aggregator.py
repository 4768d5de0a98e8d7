"""The base of all rules: a checked call from rows to one vector."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Unpack, overload

import torch
from torch import Tensor

from holdfast._typing import TensorOrTensors
from holdfast.aggregators._call import NOTHING, CallArguments, CallContext, check_grams
from holdfast.checks import check_enough_rows, check_instance, is_array
from holdfast.geometry import DenseRows, Gram, GramRows, Outcome, Rows, RowSets, Solutions
from holdfast.registry import Registry

MANY = 1000
"""With so many rows, every rule that resists bad rows at all resists some."""

SETS = 2048
"""Sets of rows that are solved together: their Gram matrices stay in the cache."""


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate:
    """The result of a rule.

    Attributes:
        vector: [d] the aggregate, with the rows' dtype and device.
        weights: [n] coefficients of the rows in the vector (float64, CPU), or None if it is not a
            combination of rows.
        rejected: bool [n] (CPU) rows without influence: not finite, or left out by the rule.
        outcome: why the solver stopped.
        gap: certified relative distance from the optimum; None for rules that do not optimize.
        steps: number of iterations of the solver.
        reference_weight: coefficient of the call's `reference` in the vector, for rules that start
            from one.
        gram: the Gram matrix of the rows, if the rule computed it.
        tile_weights: [n_tiles, n] coefficients of the rows in each tile (float64, CPU), for rules
            that treat each tile of columns separately.
    """

    vector: Tensor
    weights: Tensor | None
    rejected: Tensor
    outcome: Outcome = Outcome.CLOSED_FORM
    gap: float | None = None
    steps: int = 0
    reference_weight: float = 0.0
    gram: Gram | None = None
    tile_weights: Tensor | None = None

    def __repr__(self) -> str:
        left_out = torch.nonzero(self.rejected)[:, 0].tolist()
        gap = "" if self.gap is None else f", gap={self.gap:.1e}"
        return (
            f"Aggregate(d={len(self.vector)}, n={len(self.rejected)}, rejected={left_out}"
            f"{gap}, outcome={self.outcome.value!r})"
        )

    def for_all(self, used: Tensor, n: int) -> "Aggregate":
        """The aggregate of the rows at `used`, in terms of all n rows."""
        rejected = torch.ones(n, dtype=torch.bool)
        rejected[used] = self.rejected
        weights = None
        if self.weights is not None:
            weights = torch.zeros(n, dtype=torch.float64)
            weights[used] = self.weights
        gram = None if self.gram is None else replace(self.gram, kept=used[self.gram.kept])
        tile_weights = None
        if self.tile_weights is not None:
            tile_weights = torch.zeros(len(self.tile_weights), n, dtype=torch.float64)
            tile_weights[:, used] = self.tile_weights
        return replace(
            self, weights=weights, rejected=rejected, gram=gram, tile_weights=tile_weights
        )


class Aggregator(ABC):
    """A rule that turns rows [n, d] into one vector [d].

    Rules are immutable: the object is its configuration. A rule does not change its input and
    returns a vector of the same dtype and device. Non-finite rows get no weight. Random numbers
    come only from the generator of the call.
    """

    name: ClassVar[str]
    """The short name, as in `"krum(n_bad=2)"`."""

    reads_order: ClassVar[bool] = False
    """Whether the result depends on the order of rows; wrappers then must not mix them."""

    @property
    @abstractmethod
    def n_needed(self) -> int:
        """The least number of rows for which the rule is defined."""

    def n_resisted(self, n: int) -> int:
        """The largest number of arbitrarily bad rows among `n` that leaves the result bounded."""
        return self._n_resisted(n) if n >= self.n_needed else 0

    def has_too_few(self, n: int) -> bool:
        """Whether the rule resists no bad row among `n`, although it resists some among more."""
        return self.n_resisted(n) == 0 < self.n_resisted(MANY)

    @abstractmethod
    def _n_resisted(self, n: int) -> int:
        """The same for an `n` for which the rule is defined."""

    @property
    def takes(self) -> frozenset[str]:
        """The accepted arguments among `row_weights`, `reference`, `score` and `generator`."""
        return NOTHING

    @property
    def needs(self) -> frozenset[str]:
        """The accepted arguments that every call must pass."""
        return NOTHING

    @property
    @abstractmethod
    def reads_products(self) -> bool:
        """Whether the rule reads inner products of rows, which a wrapper then computes."""

    @property
    def reads_columns(self) -> bool:
        """Whether the rule reads single columns, so that it needs `ColumnRows`."""
        return False

    @abstractmethod
    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        """The rule itself, on checked arguments."""

    def __str__(self) -> str:
        """The class with its non-default arguments, for messages."""
        known: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        values = [(field, getattr(self, field.name)) for field in known]
        shown = [f"{field.name}={value}" for field, value in values if value != field.default]
        return f"{type(self).__name__}({', '.join(shown)})"

    @overload
    def __call__(
        self, rows: Rows | TensorOrTensors, **arguments: Unpack[CallArguments]
    ) -> Tensor: ...
    @overload
    def __call__(self, rows: Any, **arguments: Unpack[CallArguments]) -> Any: ...
    def __call__(self, rows: Any, **arguments: Unpack[CallArguments]) -> Any:
        """Return the vector [d], as a NumPy array for NumPy arrays; see :meth:`aggregate`."""
        vector = self.aggregate(rows, **arguments).vector
        if isinstance(rows, Rows):
            return vector
        tensors = list(rows) if isinstance(rows, (list, tuple)) else [rows]
        if is_array(tensors[0]):
            return vector.numpy()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self._differentiable(vector, tensors, arguments.get("row_weights"))
        return vector

    def _differentiable(
        self, vector: Tensor, tensors: Sequence[Tensor], row_weights: Tensor | None
    ) -> Tensor:
        """The result of a call as a function of the `tensors` [n, ...], if the rule has a gradient.

        Other rules return the vector without a graph.
        """
        return vector

    @torch.no_grad()
    def aggregate(
        self, rows: Rows | TensorOrTensors, **arguments: Unpack[CallArguments]
    ) -> Aggregate:
        """Return the vector with its weights, the rejected rows and the solver's outcome.

        Args:
            rows: [n, d] tensor or NumPy array, list of [n, ...] tensors (one per parameter), or any
                `Rows`.
            **arguments: `row_weights`, `reference`, `score` and `generator`, for rules that accept
                them; see :class:`CallArguments`.
        """
        rows = rows if isinstance(rows, Rows) else DenseRows(rows)
        check_enough_rows(rows.n, self.n_needed, self)
        context = CallContext(**arguments).checked(self, rows.n, rows.d)
        # Autocast would round inner products to the three digits of half precision.
        with torch.autocast(rows.device.type, enabled=False):
            if context.row_weights is None or bool((context.row_weights > 0).all()):
                return self._aggregate(rows, context)
            used = torch.nonzero(context.row_weights)[:, 0]
            check_enough_rows(len(used), self.n_needed, self)
            return self._aggregate(rows.keep(used), context.for_rows(used)).for_all(used, rows.n)

    def weights_from_gram(self, gram: Tensor, **arguments: Unpack[CallArguments]) -> Tensor:
        """Return the weights [n] of rows from their inner products `gram` [n, n].

        The inner products are about the origin. Works for rules that read only inner products or
        lengths; other rules raise an error. Use a float64 matrix: in float32 the differences of
        rows that are close to each other are lost. `aggregate(GramRows(gram))` also returns the
        certified gap.

        Example:
            >>> from holdfast.aggregators import Krum
            >>> rows = torch.tensor([[1.0], [1.1], [1.3], [2.0], [-80.0]])
            >>> Krum(n_bad=1).weights_from_gram(rows @ rows.T)
            tensor([0., 1., 0., 0., 0.], dtype=torch.float64)
        """
        weights = self.aggregate(GramRows(gram), **arguments).weights
        assert weights is not None, "a rule that reads no columns combines rows"
        return weights

    @torch.no_grad()
    def weights_from_grams(
        self, grams: Tensor, *, row_weights: Tensor | None = None, approximate: bool = False
    ) -> Tensor:
        """Return the weights [t, n] for many sets of rows at once, from inner products [t, n, n].

        `weights_from_grams(grams)[i]` is `weights_from_gram(grams[i])`, up to the tolerance of the
        rule's solver. The matrices must be symmetric and finite, with squared norms on the
        diagonal, about the origin of each set; use float64, because in float32 the differences of
        rows that are close to each other are lost. `row_weights` [n] apply to every set. Mean,
        GeometricMedian and RadiusFilter, also as the inner rule of NearestNeighborMixing, solve all
        sets together, except those in which digits were lost; these, and all sets of other rules,
        are solved one after the other. With `approximate=True` such sets keep the weights of the
        common solution, which may be wrong or NaN. The result is float64 on the CPU.

        Example:
            >>> from holdfast.aggregators import GeometricMedian
            >>> rows = torch.tensor([[[0.0], [1.0], [5.0]], [[7.0], [2.0], [3.0]]])
            >>> GeometricMedian().weights_from_grams(torch.bmm(rows, rows.mT))
            tensor([[0., 1., 0.],
                    [0., 0., 1.]], dtype=torch.float64)
        """
        n = check_grams(grams)
        check_enough_rows(n, self.n_needed, self)
        context = CallContext(row_weights=row_weights).checked(self, n, 0)
        used = torch.arange(n)
        if context.row_weights is not None:
            used = torch.nonzero(context.row_weights)[:, 0]
            check_enough_rows(len(used), self.n_needed, self)
            context = context.for_rows(used)
        weights = torch.zeros(len(grams), n, dtype=torch.float64)
        for start in range(0, len(grams), SETS):
            products = grams[start : start + SETS].to("cpu", torch.float64)
            if len(used) < n:
                products = products[:, used][:, :, used]
            weights[start : start + SETS, used] = self._weights_of_sets(
                products, context, approximate
            )
        return weights

    def _weights_of_sets(self, products: Tensor, context: CallContext, approximate: bool) -> Tensor:
        """[t, n] weights for the inner products [t, n, n] of sets of rows with positive weights."""
        found = self._solve_sets(RowSets(given=products), context)
        if found is None:
            weights = torch.empty(products.shape[:2], dtype=torch.float64)
            left = torch.arange(len(products))
        else:
            weights, left = found.weights, torch.nonzero(~found.is_certain)[:, 0]
            left = left[:0] if approximate else left
        for i in left.tolist():
            one = self.weights_from_gram(products[i], row_weights=context.row_weights)
            weights[i] = one
        return weights

    def _solve_sets(self, sets: RowSets, context: CallContext) -> Solutions | None:
        """Weights for many sets of rows at once; None if the rule solves only one at a time.

        The rows of `sets` are those of the `context`.
        """
        return None


rules: Registry[Aggregator] = Registry("rule", inner="rule")
"""Every rule by its short name: `rules.parse("mixing(n_bad=3) | geometric-median")`."""


def as_rule(rule: Aggregator | str, name: str = "rule") -> Aggregator:
    """The rule, given as an object or as a text such as `"krum(n_bad=2)"`."""
    if isinstance(rule, str):
        return rules.parse(rule)
    check_instance(name, rule, Aggregator)
    return rule


def one_hot(index: int, n: int) -> Tensor:
    """[n] weights that are 1 for one row and 0 for the others (float64, CPU)."""
    return equal_weights(torch.tensor([index]), n)


def equal_weights(indices: Tensor, n: int) -> Tensor:
    """[n] equal weights with sum 1 on the rows at `indices` (float64, CPU)."""
    return torch.zeros(n, dtype=torch.float64).index_fill_(0, indices, 1.0 / len(indices))
