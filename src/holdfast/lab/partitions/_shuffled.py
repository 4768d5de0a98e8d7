from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.lab.partitions._partition import Partition


@final
@dataclass(frozen=True, kw_only=True)
class Shuffled(Partition):
    """Independent and identically distributed: all samples are shuffled anew in each epoch, and rows are cut from them.

    Example:
        >>> [len(share) for share in Shuffled().divide(torch.zeros(60), 4, generator=torch.Generator())]
        [60]
    """

    name = "shuffled"
    is_fixed = False

    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        return [torch.arange(len(labels))]
