"""The base classes of rules that apply another rule, and of wrappers, which transform its rows."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from torch import Tensor

from holdfast._typing import TensorOrTensors
from holdfast.aggregators._aggregator import Aggregate, Aggregator, as_rule
from holdfast.aggregators._call import NOTHING, CallArguments, CallContext
from holdfast.checks import check_enough_rows, failure
from holdfast.geometry import DenseRows, Mixture, Rows, mixed_rows


class OuterRule(Aggregator):
    """A rule that applies another one: `rule`, which is a rule or its name."""

    rule: Aggregator | str

    _own_needs: ClassVar[frozenset[str]] = NOTHING
    """The arguments of the call that the outer rule itself needs."""

    @property
    def inner(self) -> Aggregator:
        """The rule that is applied."""
        assert isinstance(self.rule, Aggregator)
        return self.rule

    @property
    def takes(self) -> frozenset[str]:
        return self._own_needs | self.inner.takes

    @property
    def needs(self) -> frozenset[str]:
        return self._own_needs | self.inner.needs

    @property
    def n_needed(self) -> int:
        return self.inner.n_needed

    def _n_resisted(self, n: int) -> int:
        return self.inner.n_resisted(n)


class Wrapper(OuterRule):
    """Transforms the rows and passes them to `rule`, which is a rule or its name.

    :meth:`transform` gives the transformed rows themselves, for use without a rule.
    """

    def _set_rule(self) -> None:
        """Convert the name of a rule to the rule; it must not depend on the order of rows."""
        rule = as_rule(self.rule)
        if rule.reads_order:
            requirement = "not depend on the order of rows, which wrappers do not keep"
            raise failure("rule", requirement, rule)
        object.__setattr__(self, "rule", rule)

    @abstractmethod
    def _transform(self, rows: Rows, context: CallContext) -> tuple[Rows, CallContext]:
        """The transformed rows, and the context for the inner rule."""

    def transform(self, rows: Rows | TensorOrTensors, **arguments: Unpack[CallArguments]) -> Rows:
        """Return the transformed rows; `torch.as_tensor` makes a matrix of mixtures."""
        rows = rows if isinstance(rows, Rows) else DenseRows(rows)
        check_enough_rows(rows.n, self.n_needed, self)
        context = CallContext(**arguments).checked(self, rows.n, rows.d)
        return self._transform(rows, context)[0]

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        transformed, inner_context = self._transform(rows, context)
        inner = self.inner._aggregate(transformed, inner_context)
        if not isinstance(transformed, Mixture):
            return replace(inner, gram=None)  # it is not that of `rows`
        weights = None if inner.weights is None else inner.weights @ transformed.coefficients
        # A row is rejected if it has no part in any of the mixtures that were used.
        rejected = (transformed.coefficients[~inner.rejected] == 0).all(0)
        return replace(inner, weights=weights, rejected=rejected, gram=None)


class MixingWrapper(Wrapper):
    """Mixes the rows linearly, by their inner products or lengths.

    A mixture is an n' x n matrix, so these wrappers compose in Gram space: the data are read twice
    with any number of wrappers before a Gram rule. Before a coordinate rule the mixtures are formed
    chunk by chunk.
    """

    @property
    def reads_products(self) -> bool:
        return self._mixes_by_products or self.inner.reads_products

    @property
    def reads_columns(self) -> bool:
        return self.inner.reads_columns

    @property
    @abstractmethod
    def _mixes_by_products(self) -> bool:
        """Whether the mixing itself reads inner products, or at most lengths."""

    @abstractmethod
    def _mix(self, measured: Any, context: CallContext) -> tuple[Tensor, Tensor | None]:
        """The matrix [n', n] over the kept rows, and the weights [n'] of the mixtures or None.

        `measured` is a `Gram` if the mixing reads inner products, else any `Lengths`.
        """

    def _transform(self, rows: Rows, context: CallContext) -> tuple[Rows, CallContext]:
        # Measured once, for the mixing and for the inner rule.
        if self.reads_products:
            measured: Any = rows.gram(context.references, context.row_weights)
        else:
            measured = rows.lengths()
        matrix, row_weights = self._mix(measured, context.for_rows(measured.kept))
        return mixed_rows(rows, matrix, measured), replace(context, row_weights=row_weights)
