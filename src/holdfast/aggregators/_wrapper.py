"""Rules that transform the rows for another rule."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

from torch import Tensor

from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.checks import check_instance, failure
from holdfast.geometry import MixedRows, Rows


def check_wrappable(aggregator: object) -> None:
    """Check for an aggregator that ignores the order of rows, which mixing does not keep."""
    check_instance("aggregator", aggregator, Aggregator)
    if isinstance(aggregator, Aggregator) and aggregator.reads_order:
        requirement = "not depend on the order of rows, which wrappers do not keep"
        raise failure("aggregator", requirement, aggregator)


class Wrapper(Aggregator):
    """Mixes the rows linearly, by their inner products or lengths, and passes on the mixtures.

    A mixture is an n' x n matrix. Wrappers therefore compose in Gram space: however many stand
    before a rule of that family, the data are read twice. Before a coordinate rule the mixtures are
    formed chunk by chunk. The rule that gets the mixtures is `aggregator`.
    """

    aggregator: Aggregator

    @property
    def needs(self) -> frozenset[str]:
        return self._own_needs | self.aggregator.needs

    @property
    def reads_products(self) -> bool:
        return self._mixes_by_products or self.aggregator.reads_products

    @property
    def reads_columns(self) -> bool:
        return self.aggregator.reads_columns

    @property
    @abstractmethod
    def _own_needs(self) -> frozenset[str]:
        """The arguments of the call that the mixing itself needs."""

    @property
    @abstractmethod
    def _mixes_by_products(self) -> bool:
        """Whether the mixing itself reads inner products, or at most lengths."""

    @abstractmethod
    def _mix(self, measured: Any, given: Given) -> tuple[Tensor, Tensor | None]:
        """The matrix [n', n] over the kept rows, and the weights [n'] of the mixtures or None.

        `measured` is a `Gram` if the mixing reads inner products, else any `Lengths`.
        """

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        # Measured once, for the mixing and for the inner rule.
        if self.reads_products:
            measured: Any = rows.gram(given.references, given.row_weights)
        else:
            measured = rows.lengths()
        matrix, row_weights = self._mix(measured, given.for_rows(measured.kept))
        mixed = MixedRows(rows, matrix, measured)
        inner = self.aggregator._aggregate(mixed, replace(given, row_weights=row_weights))
        weights = None if inner.weights is None else inner.weights @ mixed.matrix
        # A row is rejected if it has no part in any of the mixtures that were used.
        return replace(inner, weights=weights, rejected=(mixed.matrix[~inner.rejected] == 0).all(0))
