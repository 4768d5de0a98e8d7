import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Generator, Tensor

from holdfast.aggregators import GramAggregator, LengthAggregator, Mean, MixingWrapper
from holdfast.geometry import full_precision, products_between
from holdfast.threats._attack_context import AttackContext


@final
class RuleTrials:
    r"""Tries out what the rule returns if bad rows send combinations of a few vectors.

    Bad row i is :math:`\mu + \sum_k c_{ik} p_k`, where :math:`\mu` is the mean of the honest rows
    and :math:`p_k` are the `vectors`. All rows of all trials lie in the span of honest rows and
    vectors. A rule that reads only inner products gives the same combination of rows in any
    orthonormal basis of that span, so trials for such a rule use n-by-m matrices, with m at most
    the number of rows and vectors, and the data is read once. Other rules are applied to whole
    rows.

    Args:
        context: with a `rule`; its honest rows must have a finite mean.
        vectors: [r, d] in multiples of `context.unit`.
    """

    def __init__(self, context: AttackContext, vectors: Tensor) -> None:
        assert context.rule is not None
        self._rule = context.rule
        self._arguments = dict(context.rule_arguments)
        self._mask, self._unit = context.mask, context.unit
        self.vectors = vectors
        """[r, m] the vectors, in the coordinates of the trials."""
        self._mean, self._deviations = context.mean, context.deviations
        if _reads_products_only(self._rule) and "score" not in self._arguments:
            self._use_coordinates()
        else:
            self._rows = context.rows.clone()

    def shift(self, coefficients: Tensor) -> Tensor:
        """[m] the rule's result minus the honest mean, in multiples of `context.unit`.

        Args:
            coefficients: [n_bad, r] or, if all bad rows are equal, [r].
        """
        self._rows[self._mask] = self._in_full(coefficients.to(self.vectors) @ self.vectors)
        result = self._rule(self._rows, **self._call_arguments())
        return result.to(self._mean) / self._unit - self._mean

    def _use_coordinates(self) -> None:
        """Replace all vectors by their coordinates in an orthonormal basis of their span."""
        # Honest rows enter as differences from their mean: the differences decide, and float32
        # products of rows with a large common part would lose them.
        known = [self._deviations, self.vectors, self._mean[None]]
        reference = self._arguments.get("reference")
        if reference is not None:
            known.append(reference.detach().to(self._mean)[None] / self._unit)
        points = coordinates(torch.cat(known))
        sizes = [len(vectors) for vectors in known]
        self._deviations, self.vectors, mean, *rest = points.split(sizes)
        self._mean, self._mask = mean[0], self._mask.cpu()
        if rest:
            self._arguments["reference"] = rest[0][0] * self._unit
        self._rows = torch.empty(len(self._mask), points.shape[1], dtype=points.dtype)
        self._rows[~self._mask] = self._in_full(self._deviations)

    def _in_full(self, offsets: Tensor) -> Tensor:
        """The mean plus `offsets`, in the size and within the range of the rows."""
        limits = torch.finfo(self._rows.dtype)
        full = (self._mean + offsets) * self._unit
        return full.clamp(limits.min, limits.max).to(self._rows.dtype)

    def _call_arguments(self) -> dict[str, Any]:
        """The rule's arguments; every trial sees the same random numbers."""
        drawn = self._arguments.get("generator")
        copied = {"generator": drawn.clone_state()} if isinstance(drawn, Generator) else {}
        return self._arguments | copied


def _reads_products_only(rule: object) -> bool:
    """Whether coordinates of the rows in any orthonormal basis are as good as the rows."""
    while isinstance(rule, MixingWrapper):
        rule = rule.rule
    return isinstance(rule, (GramAggregator, LengthAggregator, Mean))


def coordinates(vectors: Tensor) -> Tensor:
    """[n, n] float64 on the CPU: the vectors [n, d] in an orthonormal basis of their span.

    All inner products are those of the vectors.
    """
    with full_precision():
        products = products_between(vectors, vectors).cpu().double()
    values, basis = torch.linalg.eigh(products)
    # Rounding makes some of the zero eigenvalues negative.
    points: Tensor = basis * values.clamp(min=0).sqrt()
    return points


def line_search(value: Callable[[float], float], *, n_trials: int = 20) -> float:
    """The factor of at least 0 for which `value` was largest, among at most `n_trials` factors.

    Tries 0, 1/4, 1/2, 1 and 2, and doubles the factor as long as the value grows. Then it looks
    above and below the best factor, at ratios that shrink from the square root of 2 to 1.
    """
    best, largest, n_left = 0.0, value(0.0), n_trials - 1

    def is_better(factor: float) -> bool:
        nonlocal best, largest, n_left
        if n_left == 0:
            return False
        n_left -= 1
        found = value(factor)
        if not found > largest:  # a NaN is no better
            return False
        best, largest = factor, found
        return True

    # Filters reject rows from some factor on, so the value has more than one maximum: a search that
    # starts at 0 and stops at the first fall would stay there.
    for factor in (0.25, 0.5, 1.0, 2.0):
        is_better(factor)
    while best >= 2.0 and is_better(2.0 * best):
        pass
    ratio = 2.0
    while n_left > 0 and best > 0:
        ratio = math.sqrt(ratio)
        if not is_better(best * ratio):
            is_better(best / ratio)
    return best


def most_harmful_factor(context: AttackContext, vector: Tensor, *, start: float = 0.0) -> float:
    r"""The factor c of at least `start` that moves the rule farthest from the honest mean.

    All bad rows send :math:`\mu - c v`, where v is the `vector` [d] in multiples of
    `context.unit`; c is found by :func:`line_search`.
    """
    if not bool(context.mean.isfinite().all()):
        return start  # bad rows are not finite for any factor
    trials = RuleTrials(context, vector[None])

    def distance(factor: float) -> float:
        return float(torch.linalg.vector_norm(trials.shift(torch.tensor([-start - factor]))))

    return start + line_search(distance)
