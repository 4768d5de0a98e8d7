import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import (
    check_count,
    check_flag,
    check_generator,
    check_mask,
    check_one_of,
    dtype_and_shape_of,
    failure,
)


@final
@dataclass(frozen=True, kw_only=True)
class Adversaries:
    """Draws which rows or samples are bad: a share or a number of them.

    A share of n is rounded to the nearest integer, halves up: 0.4 of 32 (12.8) is 13, 0.29 of 50
    (14.5) is 15.

    Args:
        bad_fraction: the share, in [0, 1].
        n_bad: the number, instead of the share.
        redrawn: whether identities are drawn again at every step, as in the paper's experiments, or
            stay as first drawn.

    Example:
        >>> adversaries = Adversaries(bad_fraction=0.4)
        >>> adversaries.count(32)
        13
        >>> adversaries.draw(5, generator=torch.Generator().manual_seed(0)).sum()
        tensor(2)
    """

    bad_fraction: float | None = None
    n_bad: int | None = None
    redrawn: bool = True

    def __post_init__(self) -> None:
        check_one_of({"bad_fraction": self.bad_fraction, "n_bad": self.n_bad})
        if self.n_bad is not None:
            check_count("n_bad", self.n_bad)
        elif (
            isinstance(self.bad_fraction, bool)
            or not isinstance(self.bad_fraction, (int, float))
            or not 0 <= self.bad_fraction <= 1
        ):
            raise failure("bad_fraction", "be in [0, 1]", self.bad_fraction)
        check_flag("redrawn", self.redrawn)

    def count(self, n: int) -> int:
        """Number of bad ones among n."""
        check_count("n", n, at_least=1)
        if self.n_bad is None:
            assert self.bad_fraction is not None
            # A product such as 0.29 * 50 is slightly below the half that it stands for.
            return math.floor(self.bad_fraction * n + 0.5 + 1e-9)
        if self.n_bad > n:
            raise failure("n_bad", f"be at most {n}, the number there is", self.n_bad)
        return self.n_bad

    def draw(self, n: int, *, generator: torch.Generator, previous: Tensor | None = None) -> Tensor:
        """Bool [n] on the CPU, True where bad; all subsets of this size are equally likely.

        Args:
            n: number of rows or samples.
            generator: source of random numbers.
            previous: the mask of the previous step, returned again if identities are fixed.
        """
        n_bad = self.count(n)
        if previous is not None and not self.redrawn:
            check_mask(previous, n)
            return previous
        check_generator(generator)
        order = torch.randperm(n, generator=generator, device=generator.device).cpu()
        return torch.zeros(n, dtype=torch.bool).index_fill_(0, order[:n_bad], True)


def rows_to_samples(mask: Tensor, n_samples: int) -> Tensor:
    """Bool [n_samples], True for the samples of bad rows, for rows of consecutive samples.

    Row i of n holds the samples i * b to (i + 1) * b - 1, where b = n_samples / n.

    Example:
        >>> rows_to_samples(torch.tensor([False, True]), 6)
        tensor([False, False, False,  True,  True,  True])
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.ndim != 1 or len(mask) == 0:
        requirement = "be a bool tensor [n], one entry per row"
        raise failure("mask", requirement, dtype_and_shape_of(mask))
    check_count("n_samples", n_samples, at_least=1)
    if n_samples % len(mask):
        raise failure("n_samples", f"be a multiple of {len(mask)}, the number of rows", n_samples)
    return mask.repeat_interleave(n_samples // len(mask))
