"""Sampling without replacement, of fixed size, with inclusion probabilities that are exactly the ones asked for."""

import torch
from torch import Tensor

CERTAIN = 1e-9
"""A probability this near to one is one."""

NOTHING = 1e-250
"""A score this much smaller than the largest is zero; its probability would be no normal number."""


def inclusion_probabilities(scores: Tensor, k: int) -> Tensor:
    """[m] probabilities min(1, c * score) that add up to k, for scores [m] that are not negative.

    Fewer than k scores above zero: these are certain, and the others share what is left. If k scores are so large that all others together
    have a chance below 1e-9, they have none.
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
    certain = torch.zeros_like(live)
    while True:
        factor = (k - int(certain.sum())) / scores.where(~certain, 0.0).sum()
        probabilities = (factor * scores).where(~certain, 1.0)
        new = probabilities >= 1.0 - CERTAIN
        if bool((new == certain).all()):
            return probabilities
        certain = new


def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers of the units drawn, increasing: as many as the probabilities [m] add up to, each with its own probability.

    Systematic sampling in random order: the uncertain units stand side by side as intervals of their probabilities' lengths, and a comb
    of teeth at distance one, shifted at random, picks those it meets. None is longer than one, so none is picked twice.
    """
    is_certain = probabilities >= 1.0 - CERTAIN
    uncertain = torch.nonzero(~is_certain)[:, 0]
    n_left = round(float(probabilities[uncertain].sum()))
    certain = torch.nonzero(is_certain)[:, 0]
    if n_left == 0:
        return certain
    order = uncertain[torch.randperm(len(uncertain), generator=generator)]
    ends = probabilities[order].cumsum(0)
    ends *= n_left / ends[-1].item()  # what rounding has left of a whole number
    teeth = torch.arange(n_left, dtype=torch.float64) + torch.rand(
        (), dtype=torch.float64, generator=generator
    )
    picked = torch.searchsorted(ends, teeth, right=True).clamp(max=len(order) - 1)
    return torch.cat([certain, order[picked]]).sort().values
