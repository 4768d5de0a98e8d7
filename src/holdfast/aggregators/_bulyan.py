from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast.aggregators._aggregator import Aggregate, Aggregator, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import CallContext
from holdfast.aggregators._krum import krum_choice
from holdfast.aggregators._mean_around_median import mean_around_median
from holdfast.geometry import Rows, by_column


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Bulyan(BadRowLimit, Aggregator):
    r"""Krum's choice of rows, then a mean around the median of each coordinate.

    Krum chooses :math:`\theta = n - 2f` rows one after another, each among the remaining rows. In
    the last rounds a score has a single neighbor; ties are broken as in :class:`Krum`. Each
    coordinate is then the mean of the :math:`\theta - 2f` values nearest to the median of the
    chosen rows. f is `n_bad` (or given by `bad_fraction`, below 0.25). Resists f rows among
    :math:`n \ge 4f + 3`, and bounds their influence on every single coordinate. Reads the data once
    for the Gram matrix, and the chosen rows again by column.

    Reference: El Mhamdi et al., *The Hidden Vulnerability of Distributed Learning in Byzantium*
    (ICML 2018), Section 4.

    Example:
        >>> Bulyan(n_bad=1)(torch.tensor([[1.0], [2.0], [2.5], [3.0], [4.0], [5.0], [-80.0]]))
        tensor([2.5000])
    """

    name = "bulyan"
    reads_products = True
    reads_columns = True
    rows_per_bad = 4
    rows_besides = 3

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        rows = by_column(rows)
        gram = rows.gram()
        n_bad = self.n_bad_left(gram.n, gram.n_lost)
        n_chosen = gram.n - 2 * n_bad
        chosen = gram.kept[_choose(gram.squared_distances, n_chosen, n_bad)]
        n_near = max(1, n_chosen - 2 * n_bad)
        vector, _ = rows.keep(chosen).map_columns(mean_around_median(n_chosen, n_near), WIDTH)
        rejected = torch.ones(rows.n, dtype=torch.bool).index_fill_(0, chosen, False)
        return Aggregate(vector, None, rejected)


def _choose(squared_distances: Tensor, n_chosen: int, n_bad: int) -> Tensor:
    """Positions of the rows that Krum picks one after another."""
    left = torch.arange(len(squared_distances))
    chosen = []
    for _ in range(n_chosen):
        best = krum_choice(squared_distances[left][:, left], n_bad)
        chosen.append(int(left[best]))
        left = torch.cat([left[:best], left[best + 1 :]])
    return torch.tensor(chosen)
