"""Sampling without replacement, with a fixed size and exactly the given inclusion probabilities."""

import torch
from torch import Tensor

CERTAIN = 1e-9
"""A probability this close to one counts as one."""

NOTHING = 1e-250
"""A score this much smaller than the largest counts as zero; its probability would be subnormal."""


def inclusion_probabilities(scores: Tensor, k: int) -> Tensor:
    """[m] probabilities min(1, c * score) that add up to k, for nonnegative scores [m].

    If fewer than k scores are above zero, these are certain, and the others share the rest. If k
    scores are so large that all others together have a probability below 1e-9, the others get 0.
    """
    largest = scores.max()
    if not bool(largest > 0):
        return torch.full_like(scores, k / len(scores))
    scores = scores / largest
    scores = scores.where(scores > NOTHING, 0.0)
    live = scores > 0
    n_live = int(live.sum())
    if n_live <= k:
        return torch.where(live, 1.0, (k - n_live) / max(1, len(scores) - n_live)).to(scores)
    # Scores above the cap are certain; without them c grows, which may make more of them certain.
    certain = torch.zeros_like(live)
    while True:
        factor = (k - int(certain.sum())) / scores.where(~certain, 0.0).sum()
        probabilities = (factor * scores).where(~certain, 1.0)
        new = probabilities >= 1.0 - CERTAIN
        if bool((new == certain).all()):
            return probabilities
        certain = new


def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Draw units with these inclusion probabilities [m]; return their numbers, increasing.

    The number of units is the sum of the probabilities. This is systematic sampling in random
    order: the uncertain units are adjacent intervals with their probabilities as lengths, and a
    comb with teeth at distance one, shifted at random, picks the intervals that it hits. No
    interval is longer than one, so none is hit twice.
    """
    is_certain = probabilities >= 1.0 - CERTAIN
    uncertain = torch.nonzero(~is_certain)[:, 0]
    n_left = round(float(probabilities[uncertain].sum()))
    certain = torch.nonzero(is_certain)[:, 0]
    if n_left == 0:
        return certain
    order = uncertain[torch.randperm(len(uncertain), generator=generator)]
    ends = probabilities[order].cumsum(0)
    ends *= n_left / ends[-1].item()  # rounding may have missed the whole number
    shift = torch.rand((), dtype=torch.float64, generator=generator)
    teeth = torch.arange(n_left, dtype=torch.float64) + shift
    picked = torch.searchsorted(ends, teeth, right=True).clamp(max=len(order) - 1)
    return torch.cat([certain, order[picked]]).sort().values
