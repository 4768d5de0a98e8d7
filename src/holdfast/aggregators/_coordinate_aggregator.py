"""The family of rules that treat each coordinate on its own."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from holdfast._checks import check_finite_majority
from holdfast._compile import WIDTH, column_kernel
from holdfast.aggregators._aggregator import Aggregate, Aggregator, Given
from holdfast.geometry import Rows, working_dtype


class CoordinateAggregator(Aggregator):
    """A rule that applies one function of n numbers to every column, chunk by chunk.

    That a row is not finite shows on the sum of the chunk, which costs a fraction of any order statistic. Only then are the
    rows inspected, and the rule runs again without those that are not.
    """

    @abstractmethod
    def _column_function(self, n: int, n_lost: int, row_weights: Tensor | None) -> Callable[[Tensor], Tensor]:
        """The function from a chunk [n, c] to [c]; `n_lost` further rows were not finite and are gone."""

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        rejected = torch.zeros(rows.n, dtype=torch.bool)
        vector, checksum = self._walk(rows, rows.n_lost, given)
        if not bool(torch.isfinite(checksum)):
            finite = rows.finite()
            check_finite_majority(finite)
            rejected = ~finite
            if bool(rejected.any()):
                kept = torch.nonzero(finite)[:, 0]
                vector, _ = self._walk(rows.keep(kept), rows.n_lost + rows.n - len(kept), given.for_rows(kept))
        return Aggregate(vector, None, rejected)

    def _walk(self, rows: Rows, n_lost: int, given: Given) -> tuple[Tensor, Tensor]:
        """The vector [d], and a sum over all entries that is finite only if they are."""

        def make() -> Callable[[Tensor], Tensor]:
            return self._column_function(rows.n, n_lost, given.row_weights)

        key = (self, rows.n, n_lost, rows.dtype, rows.device)
        kernel = make() if given.row_weights is not None else column_kernel(key, make, repr(self), rows.n)
        dtype = working_dtype(rows.dtype)
        vector = torch.empty(rows.d, dtype=rows.dtype, device=rows.device)
        checksum = torch.zeros((), dtype=dtype, device=rows.device)
        for start, chunk in rows.chunks(WIDTH):
            checksum += chunk.sum(dtype=dtype)
            vector[start : start + chunk.shape[1]] = kernel(chunk.to(dtype))
        return vector, checksum
