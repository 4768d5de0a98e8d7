from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.aggregators._aggregator import Given, one_hot
from holdfast.aggregators._families import GramAggregator
from holdfast.checks import check_count
from holdfast.geometry import Gram, Solution, least


@final
@dataclass(frozen=True, kw_only=True)
class Krum(GramAggregator):
    r"""The row closest to its neighbours.

    Returns the :math:`g_i` that minimises the sum of its :math:`n - f - 2` smallest squared distances to other rows, where f is
    `n_bad`. Resists `n_bad` rows among :math:`n > 2f + 2`. Reads the data once, and one row of it again.

    Reference: Blanchard et al., *Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent* (NeurIPS 2017),
    Section 4.

    Example:
        >>> Krum(n_bad=1)(torch.tensor([[1.0], [1.1], [1.3], [2.0], [-80.0]]))
        tensor([1.1000])
    """

    n_bad: int

    name = "krum"

    def __post_init__(self) -> None:
        check_count("n_bad", self.n_bad)

    @property
    def n_needed(self) -> int:
        return 2 * self.n_bad + 3

    def _n_resisted(self, n: int) -> int:
        return self.n_bad

    def _solve(self, gram: Gram, given: Given) -> Solution:
        return Solution(
            one_hot(krum_choice(gram.squared_distances, gram.n_bad_left(self.n_bad)), gram.n)
        )


def krum_choice(squared_distances: Tensor, n_bad: int) -> int:
    """The row with the best score; of several, as mutual nearest neighbours are, the one nearest to all."""
    return least(krum_scores(squared_distances, n_bad), squared_distances.sum(1))


def krum_scores(squared_distances: Tensor, n_bad: int) -> Tensor:
    """[n] the sum of each row's n - n_bad - 2 smallest squared distances to other rows (of one at least)."""
    n_neighbours = max(1, len(squared_distances) - n_bad - 2)
    ordered = squared_distances.sort(dim=1).values
    return ordered[:, 1 : 1 + n_neighbours].sum(1)  # the first is the row itself, at distance zero
