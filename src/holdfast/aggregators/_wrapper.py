"""Rules that prepare the rows for another rule."""

from abc import abstractmethod
from dataclasses import replace

from torch import Tensor

from holdfast._checks import check_instance, failure
from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.aggregators._majority_vote import MajorityVote
from holdfast.geometry import Gram, MixedRows, Rows


def check_wrappable(aggregator: object) -> None:
    """An aggregator that does not depend on the order of rows, which mixing does not keep."""
    check_instance("aggregator", aggregator, Aggregator)
    if isinstance(aggregator, MajorityVote):
        raise failure("aggregator", "not depend on the order of rows, which wrappers do not keep", repr(aggregator))


class Wrapper(Aggregator):
    """Mixes the rows linearly, as their Gram matrix suggests, and hands the mixtures to `aggregator`.

    A mixture is an n' x n matrix. Wrappers therefore compose in Gram space: however many stand before a rule of that
    family, the data are read twice. Before a coordinate rule the mixtures are formed chunk by chunk.
    """

    aggregator: Aggregator

    @property
    def needs(self) -> frozenset[str]:
        return self._own_needs | self.aggregator.needs

    @property
    @abstractmethod
    def _own_needs(self) -> frozenset[str]:
        """What the mixing itself needs of the call."""

    @abstractmethod
    def _mix(self, gram: Gram, given: Given) -> tuple[Tensor, Tensor | None]:
        """The matrix [n', n] over the kept rows, and the weights [n'] of the mixtures (None: equal)."""

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        gram = rows.gram(given.references, given.row_weights)
        matrix, row_weights = self._mix(gram, given.for_rows(gram.kept))
        mixed = MixedRows(rows, matrix, gram)
        inner = self.aggregator._aggregate(mixed, replace(given, row_weights=row_weights))
        weights = None if inner.weights is None else inner.weights @ mixed.matrix
        # Without weights (coordinate rules) a row is rejected if no mixture that took part holds any of it.
        used = mixed.matrix[~inner.rejected] if weights is None else weights[None]
        return replace(inner, weights=weights, rejected=(used == 0).all(0))
