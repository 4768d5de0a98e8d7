"""Rules that prepare the rows for another rule."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

from torch import Tensor

from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.checks import check_instance, failure
from holdfast.geometry import MixedRows, Rows


def check_wrappable(aggregator: object) -> None:
    """An aggregator that does not depend on the order of rows, which mixing does not keep."""
    check_instance("aggregator", aggregator, Aggregator)
    if isinstance(aggregator, Aggregator) and aggregator.reads_order:
        raise failure(
            "aggregator",
            "not depend on the order of rows, which wrappers do not keep",
            repr(aggregator),
        )


class Wrapper(Aggregator):
    """Mixes the rows linearly, as inner products or lengths suggest, and hands the mixtures to `aggregator`.

    A mixture is an n' x n matrix. Wrappers therefore compose in Gram space: however many stand before a rule of that
    family, the data are read twice. Before a coordinate rule the mixtures are formed chunk by chunk.
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
        """What the mixing itself needs of the call."""

    @property
    @abstractmethod
    def _mixes_by_products(self) -> bool:
        """Whether the mixing itself looks at inner products, or at lengths at most."""

    @abstractmethod
    def _mix(self, measured: Any, given: Given) -> tuple[Tensor, Tensor | None]:
        """The matrix [n', n] over the kept rows, and the weights [n'] of the mixtures (None: equal).

        `measured` is a `Gram` if the mixing looks at inner products, else any `Lengths`.
        """

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        measured = (
            rows.gram(given.references, given.row_weights)
            if self.reads_products
            else rows.lengths()
        )
        matrix, row_weights = self._mix(measured, given.for_rows(measured.kept))
        mixed = MixedRows(rows, matrix, measured)
        inner = self.aggregator._aggregate(mixed, replace(given, row_weights=row_weights))
        weights = None if inner.weights is None else inner.weights @ mixed.matrix
        # A row is rejected if no mixture that took part holds any of it.
        return replace(inner, weights=weights, rejected=(mixed.matrix[~inner.rejected] == 0).all(0))
