from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.threats._attack import NOTHING, RULE, Attack, attacks
from holdfast.threats._attack_context import AttackContext, State, of_length_one
from holdfast.threats._rule_trials import RuleTrials, rule_trials
from holdfast.threats._tile_trials import TILES, TileTrials

Direction = Literal["mean", "std", "first-layer", "class", "true-gradient", "wrong-labels", "drift"]


def _first_layer(context: AttackContext) -> Tensor:
    on_layer = context.spread.sqrt() * context.mask_of_columns("first-layer")
    return -of_length_one(on_layer) - 0.5 * of_length_one(context.mean)


DIRECTIONS: dict[str, Callable[[AttackContext], Tensor]] = {
    "mean": lambda context: -context.mean,
    "std": lambda context: -context.spread,
    "first-layer": _first_layer,
    "class": lambda context: -context.spread * context.mask_of_columns("class"),
    "true-gradient": lambda context: -context.direction("true-gradient"),
    # Not reversed: a step goes against the aggregate, and is to lower this loss.
    "wrong-labels": lambda context: context.direction("wrong-labels"),
    # Nor is this: steps against x - x_bad move the model toward x_bad.
    "drift": lambda context: context.direction("drift"),
}
FROM_TRAINER = frozenset(DIRECTIONS) - {"mean", "std"}

GRID = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
"""Strengths of the search from scratch."""
N_SIZES = 9
"""Sizes of the search from scratch, at most."""
RATIOS = (1.12, 1 / 1.12, 1.3, 1 / 1.3)
"""From the strength of the previous step to those tried at the next."""
GRID_EVERY = 50
FEWEST = 3
"""The smallest group, unless there are fewer bad rows."""
FARTHEST = 1e3
"""Largest entry, in multiples of the context's unit, of own rows that trials take as they are."""

TILE_GRID = (0.1, 0.2, 0.4, 0.7, 1.15, 1.9, 3.0)
"""Strengths that are tried first in every tile."""
TILE_RATIOS = (1.2, 1 / 1.2)
"""From the best of these to those tried next."""


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class Huddle(Attack):
    r"""A group of equal rows close to the honest mean, its size and place searched at every step.

    Of b bad rows, the first k send :math:`\mu + s\, \bar\sigma\, p`, where :math:`\mu` is the mean
    of the honest rows :math:`h_i`, :math:`\bar\sigma` the mean of :math:`\|h_i - \mu\|`, and p the
    `direction`, of length 1. The others send their own gradients. The attackers know the rule A
    and choose k from min(3, b) to b and s > 0 to maximize

    .. math:: \langle A(\text{rows}) - \mu,\; p \rangle.

    At the first step and at every multiple of 50 they try nine values of s from 0.1 to 3 with every
    k, or with nine values of k if there are more. At the other steps they start from k and s of the
    previous step, which are the state, and try s times or divided by 1.12 or 1.3, and k plus or
    minus 1. A trial costs one call of the rule; all trials of a step read the data once if the rule
    reads only inner products. In the trials, own gradients that are not finite, or have entries
    about 1,000 times as large as honest ones, count as :math:`\mu`.

    Against a :class:`Blockwise` rule all of this is done in every tile of its columns:
    :math:`\bar\sigma` is that of the tile, p has length 1 in it, and k and s are its own. Tiles may
    be others at the next step, so every step searches from scratch: seven values of s from 0.1 to 3
    with k = b, then the best s times and divided by 1.2, and with three smaller values of k. On
    gradients of an MLP and a LeNet this did at least the harm of the whole grid. The state then
    holds the medians of k and s over the tiles.

    Args:
        direction: p is one of these vectors, scaled to length 1:

            - "mean": :math:`-\mu`;
            - "std": minus the standard deviations of the columns;
            - "first-layer": minus the square roots of these on the weights of the first layer, 0
              elsewhere, scaled to length 1, and minus :math:`\mu / (2 \|\mu\|)`. The direction of
              this name is 1 on the columns of these weights and 0 elsewhere;
            - "class": minus the standard deviations of the columns for the score of one class (of
              its weights and bias in the last layer), 0 elsewhere. The direction of this name is 1
              on these columns and 0 elsewhere;
            - "true-gradient": minus the direction of this name, the gradient of the loss on many
              samples;
            - "wrong-labels": the direction of this name, the gradient of the loss with wrong
              labels. Steps against the aggregate then teach the model these labels;
            - "drift": the direction of this name, the parameters minus those of a bad model, to
              which steps against the aggregate then lead.

    Reference: none; made against rules that follow the densest group of rows.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0], [3.0], [9.0]])
        >>> mask = torch.tensor([False, False, False, True])
        >>> Huddle()(rows, mask, rule="mean")[3]  # 2 minus 3 times the mean distance of 2/3
        tensor([0.])
    """

    direction: Direction = "mean"

    name = "huddle"
    aim = "The part of the aggregate along a chosen direction, whatever the rule."
    looks_at_honest = True
    takes_state = True

    def __post_init__(self) -> None:
        if not isinstance(self.direction, str) or self.direction not in DIRECTIONS:
            *others, last = map(repr, DIRECTIONS)
            known = f"{', '.join(others)} or {last}"
            raise failure("direction", f"be {known}", repr(self.direction))

    @property
    def needs(self) -> frozenset[str]:
        return RULE

    @property
    def needs_directions(self) -> frozenset[str]:
        return frozenset({self.direction}) & FROM_TRAINER or NOTHING

    def _bad_rows(self, context: AttackContext) -> Tensor:
        sizes, strengths = map(context.per_column, context.once(self._search).unbind(1))
        together = context.mean + strengths.to(context.dtype) * context.once(self._offset)
        sent = context.own.to(context.dtype)
        for i, row in enumerate(sent):
            row[:] = torch.where(i < sizes, together * context.unit, row)
        return sent

    def _learn(self, context: AttackContext) -> State:
        if context.n_bad == 0:
            return context.state
        return context.once(self._search).median(0).values

    def _offset(self, context: AttackContext) -> Tensor:
        """[d] in every tile, the mean distance of honest rows from their mean along p."""
        p = DIRECTIONS[self.direction](context)
        norms = [context.tile_norms(row) for row in (*context.deviations, p)]
        distances, length = torch.stack(norms[:-1]).mean(0), norms[-1]
        # The gradient of a model that diverges is no direction; the group stays at the mean.
        factors = (distances / length).where((length > 0) & length.isfinite(), 0.0)
        offset = context.per_column(factors) * p
        return offset.where(offset.isfinite(), 0.0)

    def _search(self, context: AttackContext) -> Tensor:
        """[n_tiles, 2] the best k and s of this step, in every tile; float64."""
        context.check_state(2)
        largest = context.n_bad
        smallest = min(FEWEST, largest)
        previous = None
        if context.state is not None:
            k, s = context.state.tolist()
            previous = [min(max(round(k), smallest), largest), s]
        if not bool(context.mean.isfinite().all()):
            # Bad rows are not finite for any choice.
            n_tiles = 1 if context.tiling is None else context.tiling.n_tiles
            return torch.tensor([previous or [largest, 1.0]] * n_tiles, dtype=torch.float64)
        vectors = torch.cat([context.once(self._offset)[None], _own(context)])
        trials = rule_trials(context, vectors)
        if context.tiling is not None:
            parts = trials.split(TILES)
            return torch.cat([_search_tiles(part, smallest, largest) for part in parts])
        if previous is None or context.step % GRID_EVERY == 0:
            grid = [[k, s] for k in _sizes(smallest, largest) for s in GRID]
            return _best(trials, grid, largest)[0]
        k, s = previous
        other_sizes = [size for size in (k + 1, k - 1) if smallest <= size <= largest]
        near = [[k, ratio * s] for ratio in RATIOS] + [[size, s] for size in other_sizes]
        return _best(trials, [previous, *near], largest)[0]


Trials = RuleTrials | TileTrials


def _own(context: AttackContext) -> Tensor:
    """[n_bad, d] own rows minus the mean; zero for rows whose squares would drown the others."""
    offsets = context.own.to(context.dtype) / context.unit - context.mean
    is_near = offsets.abs().amax(1, keepdim=True) <= FARTHEST  # False for NaN
    return offsets.where(is_near, 0.0)


def _sizes(smallest: int, largest: int, n_sizes: int = N_SIZES) -> list[int]:
    """The largest size first; evenly spaced if there are more than `n_sizes`."""
    if largest - smallest < n_sizes:
        return list(range(largest, smallest - 1, -1))
    spacing = (largest - smallest) / (n_sizes - 1)
    return [round(largest - i * spacing) for i in range(n_sizes)]


def _search_tiles(trials: Trials, smallest: int, largest: int) -> Tensor:
    """[n_tiles, 2] the best k and s of every tile."""
    first, harm = _best(trials, [[largest, s] for s in TILE_GRID], largest)
    nearby = [first * torch.tensor([1.0, ratio]) for ratio in TILE_RATIOS]
    for size in _sizes(smallest, largest, 4)[1:]:
        nearby.append(torch.stack([torch.full_like(first[:, 0], size), first[:, 1]], dim=1))
    second, its_harm = _best(trials, torch.stack(nearby, dim=1), largest)
    return second.where((its_harm > harm)[:, None], first)


def _best(trials: Trials, choices: Tensor | list[list[float]], n_bad: int) -> tuple[Tensor, Tensor]:
    """[n_tiles, 2] the most harmful of the choices [n_tiles, c, 2] of k and s, and its harm.

    The first, among equals.
    """
    if not isinstance(choices, Tensor):
        choices = torch.tensor(choices, dtype=torch.float64).expand(trials.n_tiles, -1, -1)
    sizes, strengths = choices[..., :1], choices[..., 1:]
    in_group = torch.arange(n_bad) < sizes
    own = torch.diag_embed((~in_group).double())
    coefficients = torch.cat([(strengths * in_group)[..., None], own], dim=-1)
    harms = trials.along(coefficients)
    harms = harms.where(~harms.isnan(), -torch.inf)  # a NaN is no harm
    each, best = torch.arange(len(choices)), harms.argmax(1)
    return choices[each, best], harms[each, best]
