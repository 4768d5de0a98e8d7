from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._typing import Score
from holdfast.aggregators._aggregator import Aggregate, Aggregator, equal_weights, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._call import SCORE, CallContext
from holdfast.checks import check_nonnegative, failure
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import Rows


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Zeno(BadRowLimit, Aggregator):
    r"""The mean of the :math:`n - b` rows with the largest descent on trusted data.

    b is `n_bad` (or given by `bad_fraction`, below 1). The call passes `score`, which returns how
    much the loss on a trusted batch falls along a direction, :math:`f(x) - f(x - \gamma g)`. The
    rule ranks rows by :math:`\mathrm{score}(g_i) - \rho \|g_i\|^2`, where :math:`\rho` is
    `penalty`. Resists b rows, any number below n, if the score can be trusted. It belongs to
    neither family: it scores each row separately, with n calls of `score`.

    Reference: Xie, Koyejo and Gupta, *Zeno: Distributed Stochastic Gradient Descent with
    Suspicion-based Fault-tolerance* (ICML 2019), Definitions 1 and 2.

    Example:
        >>> downhill = lambda direction: float(direction[0])
        >>> Zeno(n_bad=1)(torch.tensor([[1.0], [3.0], [-80.0]]), score=downhill)
        tensor([2.])
    """

    penalty: float = 0.0

    name = "zeno"
    reads_products = False
    takes = SCORE
    needs = SCORE
    rows_per_bad = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("penalty", self.penalty)

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        assert context.score is not None
        n_kept = rows.n - self.n_bad_left(rows.n, rows.n_lost)
        finite = torch.nonzero(rows.finite())[:, 0]
        if len(finite) < n_kept:
            raise NonFiniteRowsError(
                f"`rows` must be finite in at least {n_kept} rows (needed by {self}), "
                f"got {len(finite)}."
            )
        found = [self._score(rows, i, context.score) for i in finite]
        # Holders of different columns call a score with their own; all use the largest.
        scores = rows.holders.max(torch.tensor(found, dtype=torch.float64))
        scores = (scores - self._penalties(rows, finite)).nan_to_num(-torch.inf, posinf=torch.inf)
        order = scores.argsort(descending=True, stable=True)
        weights = equal_weights(finite[order[:n_kept]], rows.n)
        return Aggregate(rows.combine(weights), weights, weights == 0)

    def _score(self, rows: Rows, i: Tensor, score: Score) -> float:
        returned = score(rows.combine(equal_weights(i[None], rows.n)))
        try:
            return float(returned)
        except (TypeError, ValueError):
            raise failure("score", "return a number", type(returned).__name__) from None

    def _penalties(self, rows: Rows, finite: Tensor) -> Tensor | float:
        if self.penalty == 0.0:
            return 0.0
        lengths = rows.lengths()
        squares = torch.zeros(rows.n, dtype=torch.float64)
        squares[lengths.kept] = (lengths.norms * lengths.unit).square()
        return self.penalty * squares[finite]
