"""Rows: what a rule may ask of n gradient estimates, however they are stored."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from holdfast.geometry._gram import Gram


class Rows(ABC):
    """n vectors of d coordinates, known through a few operations.

    A rule never needs the [n, d] matrix itself. Rules in Gram space ask for `gram` and `combine`; coordinate rules walk over
    `chunks`. Whatever storage offers these operations has every rule.
    """

    n: int
    d: int
    dtype: torch.dtype
    device: torch.device
    n_lost: int = 0
    """Rows that were not finite and were set aside already: so many bad ones fewer to expect."""

    @abstractmethod
    def gram(self, references: Sequence[Tensor] = ()) -> Gram:
        """Inner products among the finite rows, the `references` (vectors [d]) and the origin."""

    @abstractmethod
    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        """The vector [d] that is the sum of `weights[i]` times row i; rows of weight zero are not read.

        `exact` forms it in float64, for weights and entries of extreme size.
        """

    @abstractmethod
    def columns(self, block: Tensor) -> "Rows":
        """The rows restricted to the columns `block` [k], in increasing order."""

    @abstractmethod
    def keep(self, indices: Tensor) -> "Rows":
        """Only the rows at `indices`."""

    @abstractmethod
    def chunks(self, width: int) -> Iterator[tuple[int, Tensor]]:
        """The position of the first column, and the rows [n, at most width], chunk by chunk from left to right."""

    @abstractmethod
    def finite(self) -> Tensor:
        """Which rows are finite throughout: bool [n] on the CPU."""
