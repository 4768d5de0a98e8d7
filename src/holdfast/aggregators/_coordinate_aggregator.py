"""The family of rules that treat each coordinate on its own."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from holdfast._compile import WIDTH, column_kernel
from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.checks import check_finite_majority
from holdfast.geometry import Rows


class CoordinateAggregator(Aggregator):
    """A rule that applies one function of n numbers to every column, chunk by chunk.

    If the walk over the columns shows that something is not finite, the rows are inspected, and the rule runs again without those
    that are not.
    """

    reads_products = False
    reads_columns = True

    @abstractmethod
    def _column_function(
        self, n: int, n_lost: int, row_weights: Tensor | None
    ) -> Callable[[Tensor], Tensor]:
        """The function from a chunk [n, c] to [c]; `n_lost` further rows were not finite and are gone."""

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        vector, is_clean = self._map(rows, rows.n_lost, given)
        rejected = torch.zeros(rows.n, dtype=torch.bool)
        if not is_clean:
            finite = rows.finite()
            check_finite_majority(finite)
            rejected = ~finite
            if bool(rejected.any()):
                kept = torch.nonzero(finite)[:, 0]
                vector, _ = self._map(
                    rows.keep(kept), rows.n_lost + rows.n - len(kept), given.for_rows(kept)
                )
        return Aggregate(vector, None, rejected)

    def _map(self, rows: Rows, n_lost: int, given: Given) -> tuple[Tensor, bool]:
        def make() -> Callable[[Tensor], Tensor]:
            return self._column_function(rows.n, n_lost, given.row_weights)

        key = (self, rows.n, n_lost, rows.dtype, rows.device)
        kernel = (
            make()
            if given.row_weights is not None
            else column_kernel(key, make, repr(self), rows.n)
        )
        return rows.map_columns(kernel, WIDTH)
