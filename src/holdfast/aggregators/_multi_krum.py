from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.aggregators._krum import krum_scores
from holdfast.checks import check_count, failure
from holdfast.geometry import Gram, Solution


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class MultiKrum(BadRowLimit, GramAggregator):
    r"""The mean of the `n_selected` rows with the best Krum scores.

    The default is the number that the theory covers, :math:`n - f - 2`, where f is `n_bad` (or
    given by `bad_fraction`). Scores count rows; `row_weights` enter the mean of the selected rows,
    as numbers of examples do in federated averaging. Resists f rows among :math:`n > 2f + 2`. Reads
    the data once, and the selected rows again.

    Reference: Blanchard et al., *Machine Learning with Adversaries: Byzantine Tolerant Gradient
    Descent* (NeurIPS 2017), Section 4.1.

    Example:
        >>> MultiKrum(n_bad=1, n_selected=2)(torch.tensor([[1.0], [1.1], [1.3], [2.0], [-80.0]]))
        tensor([1.0500])
    """

    n_selected: int | None = None

    name = "multi-krum"
    rows_besides = 3
    takes = ROW_WEIGHTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_selected is not None:
            check_count("n_selected", self.n_selected, at_least=1)

    @property
    def n_needed(self) -> int:
        # Of n rows, f may be lost as non-finite, and n_selected must be left.
        return max(self._smallest_n(2, 3), self._smallest_n(1, self.n_selected or 1))

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        n_bad = self.n_bad_left(gram.n, gram.n_lost)
        n_selected = self.n_selected or max(1, gram.n - n_bad - 2)
        if n_selected > gram.n:
            needed = f"have at least {n_selected} finite rows (needed by {self})"
            raise failure("rows", needed, gram.n)
        best = krum_scores(gram.squared_distances, n_bad).argsort(stable=True)[:n_selected]
        weights = torch.zeros(gram.n, dtype=torch.float64)
        weights[best] = context.weights_of(gram.n)[best]
        return Solution(weights / weights.sum())
