from dataclasses import dataclass
from math import isnan
from typing import final

import torch
from torch import Tensor

from holdfast._typing import Score
from holdfast.aggregators._aggregator import (
    SCORE,
    Aggregate,
    Aggregator,
    Given,
    equal_weights,
    one_hot,
)
from holdfast.checks import check_count, check_nonnegative, failure
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import Rows


@final
@dataclass(frozen=True, kw_only=True)
class Zeno(Aggregator):
    r"""The mean of the :math:`n - b` rows that promise the largest descent on trusted data, where b is `n_bad`.

    The call brings `score`, which says how much the loss on a trusted batch falls along a direction,
    :math:`f(x) - f(x - \gamma g)`. The rule ranks rows by :math:`\mathrm{score}(g_i) - \rho \|g_i\|^2`, where :math:`\rho` is `penalty`. Resists
    `n_bad` rows, any number below n, as far as the score can be trusted. It belongs to neither family: each row is scored by
    itself, n calls in all.

    Reference: Xie, Koyejo and Gupta, *Zeno: Distributed Stochastic Gradient Descent with Suspicion-based Fault-tolerance*
    (ICML 2019), Definitions 1 and 2.

    Example:
        >>> downhill = lambda direction: float(direction[0])
        >>> Zeno(n_bad=1)(torch.tensor([[1.0], [3.0], [-80.0]]), score=downhill)
        tensor([2.])
    """

    n_bad: int
    penalty: float = 0.0

    name = "zeno"
    reads_products = False
    takes = SCORE
    needs = SCORE

    def __post_init__(self) -> None:
        check_count("n_bad", self.n_bad)
        check_nonnegative("penalty", self.penalty)

    @property
    def n_needed(self) -> int:
        return self.n_bad + 1

    def _n_resisted(self, n: int) -> int:
        return self.n_bad

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        assert given.score is not None
        n_kept = rows.n - max(0, self.n_bad - rows.n_lost)
        kept = torch.nonzero(rows.finite())[:, 0]
        if len(kept) < n_kept:
            raise NonFiniteRowsError(
                f"`rows` must be finite in at least {n_kept} rows (needed by {self!r}), got {len(kept)}."
            )
        scores = torch.tensor(
            [self._score(rows, int(i), given.score) for i in kept], dtype=torch.float64
        )
        best = kept[scores.argsort(descending=True, stable=True)[:n_kept]]
        weights = equal_weights(best, rows.n)
        return Aggregate(rows.combine(weights), weights, weights == 0)

    def _score(self, rows: Rows, i: int, score: Score) -> float:
        row: Tensor = rows.combine(one_hot(i, rows.n))
        returned = score(row)
        try:
            value = float(returned)
        except (TypeError, ValueError):
            raise failure("score", "return a number", type(returned).__name__) from None
        value -= self.penalty * float(row.double().square().sum())
        return float("-inf") if isnan(value) else value
