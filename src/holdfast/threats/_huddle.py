from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.threats._attack import NOTHING, RULE, Attack, attacks
from holdfast.threats._attack_context import AttackContext, State, of_length_one
from holdfast.threats._rule_trials import RuleTrials

DIRECTIONS: dict[str, Callable[[AttackContext], Tensor]] = {
    "mean": lambda context: -context.mean,
    "std": lambda context: -context.spread,
    "true-gradient": lambda context: -context.direction("true-gradient"),
    # Not reversed: a step goes against the aggregate, and is to lower this loss.
    "wrong-labels": lambda context: context.direction("wrong-labels"),
}
FROM_TRAINER = frozenset({"true-gradient", "wrong-labels"})

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

Choice = tuple[int, float]
"""Size k of the group and strength s."""


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

    Args:
        direction: p is one of these vectors, scaled to length 1:

            - "mean": :math:`-\mu`;
            - "std": minus the standard deviations of the columns;
            - "true-gradient": minus the direction of this name, the gradient of the loss on many
              samples;
            - "wrong-labels": the direction of this name, the gradient of the loss with wrong
              labels. Steps against the aggregate then teach the model these labels.

    Reference: none; made against rules that follow the densest group of rows.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0], [3.0], [9.0]])
        >>> mask = torch.tensor([False, False, False, True])
        >>> Huddle()(rows, mask, rule="mean")[3]  # 2 minus 3 times the mean distance of 2/3
        tensor([0.])
    """

    direction: Literal["mean", "std", "true-gradient", "wrong-labels"] = "mean"

    name = "huddle"
    aim = "The part of the aggregate along a chosen direction, whatever the rule."
    looks_at_honest = True
    takes_state = True

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
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
        k, s = context.once(self._search)
        sent = context.own.to(context.dtype)
        sent[:k] = (context.mean + s * context.once(self._offset)) * context.unit
        return sent

    def _learn(self, context: AttackContext) -> State:
        if context.n_bad == 0:
            return context.state
        return torch.tensor(context.once(self._search), dtype=torch.float64)

    def _offset(self, context: AttackContext) -> Tensor:
        """[d] the mean distance of honest rows from their mean, along the direction."""
        distance = torch.linalg.vector_norm(context.deviations, dim=1).mean()
        offset = distance * of_length_one(DIRECTIONS[self.direction](context))
        # The gradient of a model that diverges is no direction; the group stays at the mean.
        return offset if bool(offset.isfinite().all()) else torch.zeros_like(offset)

    def _search(self, context: AttackContext) -> Choice:
        """The best k and s of this step."""
        context.check_state(2)
        largest = context.n_bad
        smallest = min(FEWEST, largest)
        previous = None if context.state is None else _choice(context.state, smallest, largest)
        if not bool(context.mean.isfinite().all()):
            return previous or (largest, 1.0)  # bad rows are not finite for any choice
        trials = RuleTrials(context, torch.cat([context.once(self._offset)[None], _own(context)]))
        as_own = torch.eye(largest, largest + 1).roll(1, 1)

        def harm(choice: Choice) -> float:
            coefficients = as_own.clone()
            coefficients[: choice[0]] = 0.0
            coefficients[: choice[0], 0] = choice[1]
            return float(trials.shift(coefficients) @ trials.vectors[0])

        if previous is None or context.step % GRID_EVERY == 0:
            return _best(harm, ((k, s) for k in _sizes(smallest, largest) for s in GRID))
        k, s = previous
        other_sizes = [size for size in (k + 1, k - 1) if smallest <= size <= largest]
        near = [(k, ratio * s) for ratio in RATIOS] + [(size, s) for size in other_sizes]
        return _best(harm, [previous, *near])


def _own(context: AttackContext) -> Tensor:
    """[n_bad, d] own rows minus the mean; zero for rows whose squares would drown the others."""
    offsets = context.own.to(context.dtype) / context.unit - context.mean
    is_near = offsets.abs().amax(1, keepdim=True) <= FARTHEST  # False for NaN
    return offsets.where(is_near, 0.0)


def _sizes(smallest: int, largest: int) -> list[int]:
    """The largest size first; evenly spaced if there are more than `N_SIZES`."""
    if largest - smallest < N_SIZES:
        return list(range(largest, smallest - 1, -1))
    spacing = (largest - smallest) / (N_SIZES - 1)
    return [round(largest - i * spacing) for i in range(N_SIZES)]


def _choice(state: Tensor, smallest: int, largest: int) -> Choice:
    """The state as a choice that is possible with these numbers of rows."""
    k, s = state.tolist()
    return min(max(round(k), smallest), largest), s


def _best(harm: Callable[[Choice], float], choices: Iterable[Choice]) -> Choice:
    """The first choice of the largest harm; a NaN is no harm."""
    best, largest = None, -torch.inf
    for choice in choices:
        found = harm(choice)
        if best is None or found > largest:
            best, largest = choice, found if found == found else -torch.inf
    assert best is not None
    return best
