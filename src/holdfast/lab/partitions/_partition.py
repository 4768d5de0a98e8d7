"""What every partition is: who holds which samples."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Partition(ABC):
    """Divides the training samples among the rows of a step, or clients."""

    name: ClassVar[str]
    """The short name, as in `"shards(n_shards=80)"`."""

    is_fixed: ClassVar[bool] = True
    """Whether row i is the same client at every step; otherwise rows are cut from one shuffled set."""

    @abstractmethod
    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        """The indices that each client holds: a list of disjoint int64 tensors, none of them empty.

        A partition that is not fixed returns all indices as one share, which the rows have in common.

        Args:
            labels: [N] int64.
            n_rows: how many clients there are.
            generator: source of random numbers, on the CPU.
        """
