import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, final

import torch
from torch import Generator, Tensor

from holdfast.aggregators import Blockwise, GramAggregator, LengthAggregator, Mean, MixingWrapper
from holdfast.geometry import DenseRows, full_precision, products_between
from holdfast.threats._attack_context import AttackContext
from holdfast.threats._tile_trials import TILES, TileTrials


@final
class RuleTrials:
    r"""Tries out what the rule returns if bad rows send combinations of a few vectors.

    Bad row i is :math:`\mu + \sum_k c_{ik} p_k`, where :math:`\mu` is the mean of the honest rows
    and :math:`p_k` are the `vectors`. All rows of all trials lie in the span of honest rows and
    vectors. A rule that reads only inner products gives the same combination of rows in any
    orthonormal basis of that span, so trials for such a rule use n-by-m matrices, with m at most
    the number of rows and vectors, and the data is read once. Other rules are applied to whole
    rows. The rows are one tile: :class:`TileTrials` has the same operations for many.

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
        self._sections = context.sections if isinstance(self._rule, Blockwise) else None
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
        rows: Any = self._rows
        if self._sections is not None:
            rows = DenseRows(list(self._rows.split(list(self._sections), dim=1)))
        result = self._rule(rows, **self._call_arguments())
        return result.to(self._mean) / self._unit - self._mean

    def along(self, coefficients: Tensor) -> Tensor:
        """[1, c] inner products of the shifts of c trials with the first vector, float64.

        Args:
            coefficients: [1, c, n_bad, r].
        """
        found = [float(self.shift(trial) @ self.vectors[0]) for trial in coefficients[0]]
        return torch.tensor([found], dtype=torch.float64)

    def distances(self, coefficients: Tensor) -> Tensor:
        """[1, c] lengths of the shifts of c trials, float64; arguments as in :meth:`along`."""
        found = [float(torch.linalg.vector_norm(self.shift(trial))) for trial in coefficients[0]]
        return torch.tensor([found], dtype=torch.float64)

    n_tiles: ClassVar[int] = 1

    def split(self, n_tiles: int) -> "Iterator[RuleTrials]":
        """These trials, which have one tile."""
        yield self

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
    # Zero eigenvalues come out as rounding errors of either sign, whose roots would be large.
    rounding = len(values) * torch.finfo(values.dtype).eps * values[-1]
    points: Tensor = basis * values.where(values > rounding, 0.0).sqrt()
    return points


def rule_trials(context: AttackContext, vectors: Tensor) -> RuleTrials | TileTrials:
    """Trials of the context's rule: in every tile if it treats each on its own, else of all."""
    return (RuleTrials if context.tiling is None else TileTrials)(context, vectors)


def line_search(value: Callable[[float], float], *, n_trials: int = 20) -> float:
    """The factor of at least 0 for which `value` was largest, among at most `n_trials` factors.

    Tries 0, 1/4, 1/2, 1 and 2, and doubles the factor as long as the value grows. Then it looks
    above and below the best factor, at ratios that shrink from the square root of 2 to 1.
    """

    def values(factors: Tensor) -> Tensor:
        return factors.new_tensor([value(float(factors))])

    return float(line_searches(values, 1, n_trials=n_trials))


def line_searches(value: Callable[[Tensor], Tensor], n: int, *, n_trials: int = 20) -> Tensor:
    """[n] the factors of `n` searches as :func:`line_search` has one, all at once.

    `value` takes factors [n] and returns a value for each.
    """
    best = torch.zeros(n, dtype=torch.float64)
    largest = value(best).clone()

    def is_better(factors: Tensor) -> Tensor:
        found = value(factors)
        better = found > largest  # a NaN is no better
        best[better], largest[better] = factors[better], found[better]
        return better

    # Filters reject rows from some factor on, so the value has more than one maximum: a search that
    # starts at 0 and stops at the first fall would stay there.
    for factor in (0.25, 0.5, 1.0, 2.0)[: n_trials - 1]:
        is_better(torch.full_like(best, factor))
    doubles, upward = best >= 2.0, torch.ones(n, dtype=torch.bool)
    ratios = torch.full_like(best, math.sqrt(2.0))
    for _ in range(n_trials - 5):
        if not bool((best > 0).any()):
            break
        near = torch.where(upward, best * ratios, best / ratios)
        better = is_better(torch.where(doubles, 2.0 * best, near))
        # Above, then below, then closer; a better factor is the next to look around.
        is_done = ~doubles & (better | ~upward)
        upward = doubles | is_done
        ratios = torch.where(is_done, ratios.sqrt(), ratios)
        doubles &= better
    return best


def most_harmful_factor(context: AttackContext, vector: Tensor, *, start: float = 0.0) -> Tensor:
    r"""The factor c of at least `start` that moves the rule farthest from the honest mean.

    All bad rows send :math:`\mu - c v`, where v is the `vector` [d] in multiples of
    `context.unit`; c is found by :func:`line_search`. For a rule that treats tiles each on its own,
    every tile has its factor; the result is [d], or [1] if all columns have the same factor.
    """
    if not bool(context.mean.isfinite().all()):
        return context.mean.new_tensor([start])  # bad rows are not finite for any factor
    trials = rule_trials(context, vector[None])

    def search(part: RuleTrials | TileTrials) -> Tensor:
        def distances(factors: Tensor) -> Tensor:
            coefficients = (-start - factors)[:, None, None, None]
            return part.distances(coefficients.expand(-1, 1, context.n_bad, 1))[:, 0]

        return start + line_searches(distances, part.n_tiles)

    found = torch.cat([search(part) for part in trials.split(TILES)])
    return context.per_column(found.to(context.dtype))
