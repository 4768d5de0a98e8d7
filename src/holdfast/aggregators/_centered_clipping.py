from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import rules
from holdfast.aggregators._call import REFERENCE, ROW_WEIGHTS, CallContext
from holdfast.aggregators._families import GramAggregator, ResistsMinority
from holdfast.checks import check_count, check_positive
from holdfast.geometry import Gram, Outcome, Solution, distances_from


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class CenteredClipping(ResistsMinority, GramAggregator):
    r"""A few steps toward the rows, in which each row moves the point by at most `radius`.

    :math:`v \leftarrow v + \sum_i \eta_i (g_i - v) \min(1, \tau / \|g_i - v\|)`, `n_steps` times,
    where :math:`\tau` is `radius` and :math:`\eta_i` are the `row_weights`. Starts from
    `reference`, usually the previous aggregate, or from zero without one; the rule is translation
    equivariant only if the start moves with the rows. A share :math:`\delta` of bad rows moves the
    result by at most :math:`\delta\tau` per step, whatever they hold. Reads the data twice.

    Reference: Karimireddy et al., *Learning from History for Byzantine Robust Optimization*
    (ICML 2021), Algorithm 2.

    Example:
        >>> rule = CenteredClipping(radius=1.0, n_steps=1)
        >>> rule(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1e9]]))
        tensor([0.3333, 0.6667])
    """

    radius: float
    n_steps: int = 3

    name = "centered-clipping"
    takes = ROW_WEIGHTS | REFERENCE

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_count("n_steps", self.n_steps, at_least=1)

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        # Seen from the start: the reference, which is the point after the rows, or the origin.
        seen = gram.about_origin if context.reference is None else gram.about(gram.n)
        products = seen[: gram.n, : gram.n]
        radius = self.radius / gram.unit
        shares = context.weights_of(gram.n)
        weights = torch.zeros_like(shares)  # of g_i - start
        for _ in range(self.n_steps):
            distances = distances_from(products, weights)
            pulls = shares * (radius / distances).clamp(max=1.0).nan_to_num(1.0)
            weights = weights * (1 - pulls.sum()) + pulls
        start_weight = 1 - float(weights.sum())
        return Solution(weights, Outcome.FINISHED, self.n_steps, reference_weight=start_weight)
