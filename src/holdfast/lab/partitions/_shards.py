from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count, failure
from holdfast.lab.partitions._partition import Partition


@final
@dataclass(frozen=True, kw_only=True)
class Shards(Partition):
    """Shards of samples sorted by label, as many for each client: most clients see a few classes alone.

    The samples are sorted by label and cut into `n_shards` shards of equal size (within one); each client gets `n_shards / n_rows` of them at random. With 80
    shards and 10 clients, 8 each.

    Args:
        n_shards: how many shards; a multiple of the number of clients.

    Reference: McMahan et al., *Communication-Efficient Learning of Deep Networks from Decentralized Data* (AISTATS 2017), section 3; the paper,
    section 5 (CIFAR-10).

    Example:
        >>> shares = Shards(n_shards=4).divide(torch.tensor([1, 0, 1, 0]), 2, generator=torch.Generator().manual_seed(0))
        >>> sorted(len(share) for share in shares)
        [2, 2]
    """

    n_shards: int = 80

    name = "shards"

    def __post_init__(self) -> None:
        check_count("n_shards", self.n_shards, at_least=1)

    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        if self.n_shards % n_rows:
            raise failure(
                "n_shards", f"be a multiple of {n_rows}, the number of clients", self.n_shards
            )
        if self.n_shards > len(labels):
            raise failure(
                "n_shards", f"be at most {len(labels)}, the number of samples", self.n_shards
            )
        shards = labels.argsort(stable=True).tensor_split(self.n_shards)
        order = torch.randperm(self.n_shards, generator=generator).view(n_rows, -1)
        return [torch.cat([shards[i] for i in own]) for own in order.tolist()]
