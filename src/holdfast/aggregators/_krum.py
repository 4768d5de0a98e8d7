from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.aggregators._aggregator import one_hot, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_flag
from holdfast.geometry import Gram, Solution, least


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Krum(BadRowLimit, GramAggregator):
    r"""The row closest to its neighbors.

    Returns the :math:`g_i` with the least sum of its :math:`n - f - 2` smallest squared distances
    to other rows, where f is `n_bad` (or given by `bad_fraction`). Of rows with equal scores it
    takes the one with the least sum of squared distances to all rows, then the first. Resists f
    rows among :math:`n > 2f + 2`. Reads the data once, and one row again.

    With `relaxed` it accepts any :math:`n \ge f + 3`, where the score is still defined but the
    theorem does not hold: it then resists only :math:`n - f - 2` rows, which are too few to be each
    other's nearest neighbors.

    Reference: Blanchard et al., *Machine Learning with Adversaries: Byzantine Tolerant Gradient
    Descent* (NeurIPS 2017), Section 4.

    Example:
        >>> Krum(n_bad=1)(torch.tensor([[1.0], [1.1], [1.3], [2.0], [-80.0]]))
        tensor([1.1000])
    """

    relaxed: bool = False

    name = "krum"
    rows_besides = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("relaxed", self.relaxed)

    @property
    def n_needed(self) -> int:
        return self._smallest_n(1 if self.relaxed else 2, 3)

    def _n_resisted(self, n: int) -> int:
        n_bad = self.count_bad(n)
        return min(n_bad, n - n_bad - 2)

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        n_bad = self.n_bad_left(gram.n, gram.n_lost)
        return Solution(one_hot(krum_choice(gram.squared_distances, n_bad), gram.n))


def krum_choice(squared_distances: Tensor, n_bad: int) -> int:
    """The row with the best score; among equals, with the least sum of squared distances to all."""
    # Mutual nearest neighbors have equal scores when one neighbor counts.
    return least(krum_scores(squared_distances, n_bad), squared_distances.sum(1))


def krum_scores(squared_distances: Tensor, n_bad: int) -> Tensor:
    """[n] the sum of each row's n - n_bad - 2 (at least 1) smallest squared distances to others."""
    n_neighbors = max(1, len(squared_distances) - n_bad - 2)
    ordered = squared_distances.sort(dim=1).values
    return ordered[:, 1 : 1 + n_neighbors].sum(1)  # the first is the row itself, at distance zero
