"""Partitions of the training samples among clients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_positive, failure
from holdfast.registry import Registry

__all__ = ["Dirichlet", "Partition", "Shards", "Shuffled", "partitions"]

_LARGEST = 1e12  # beyond this alpha all proportions are equal to many digits


class Partition(ABC):
    """Divides the training samples among the rows (clients) of a step."""

    name: ClassVar[str]
    """The short name, as in `"shards(n_shards=80)"`."""

    is_fixed: ClassVar[bool] = True
    """Whether row i is the same client at every step; otherwise rows share one shuffled set."""

    @abstractmethod
    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        """The sample indices of each client: disjoint int64 tensors, none of them empty.

        A partition that is not fixed returns all indices as one share, common to all rows.

        Args:
            labels: [N] int64.
            n_rows: number of clients.
            generator: source of random numbers, on the CPU.
        """


partitions: Registry[Partition] = Registry("partition")
"""Every partition by its short name: `partitions.parse("shards(n_shards=80)")`."""


@final
@partitions.register
@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    r"""Divides each class in proportions drawn from a symmetric Dirichlet distribution.

    For every class, :math:`p \sim \mathrm{Dir}(\alpha, \dots, \alpha)`, and client i gets the share
    :math:`p_i` of its samples. A small `alpha` gives clients with few classes and very different
    sizes, a large `alpha` equal clients. A client without samples gets one of the largest client.

    Args:
        alpha: concentration, above 0.

    Reference: Hsu, Qi and Brown, *Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification* (arXiv:1909.06335), but drawn per class instead of per client,
    so that every sample is used.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> shares = Dirichlet(alpha=0.5).divide(torch.arange(1000) % 10, 5, generator=generator)
        >>> sum(len(share) for share in shares)
        1000
    """

    alpha: float = 0.5

    name = "dirichlet"

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)

    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        if n_rows > len(labels):
            raise failure("n_rows", f"be at most {len(labels)}, the number of samples", n_rows)
        shares: list[list[Tensor]] = [[] for _ in range(n_rows)]
        for label in labels.unique():
            own = (labels == label).nonzero().flatten()
            own = own[torch.randperm(len(own), generator=generator)]
            proportions = _dirichlet(self.alpha, n_rows, generator)
            ends = (proportions.cumsum(0) * len(own)).round().long().clamp(max=len(own))
            for share, part in zip(shares, own.tensor_split(ends[:-1]), strict=True):
                share.append(part)
        return _without_empty([torch.cat(share) for share in shares])


@final
@partitions.register
@dataclass(frozen=True, kw_only=True)
class Shards(Partition):
    """Cuts the samples, sorted by label, into shards; most clients see few classes.

    The `n_shards` shards have equal sizes, up to one sample; each client gets `n_shards / n_rows`
    of them at random. With 80 shards and 10 clients, that is 8 each.

    Args:
        n_shards: number of shards, a multiple of the number of clients.

    Reference: McMahan et al., *Communication-Efficient Learning of Deep Networks from Decentralized
    Data* (AISTATS 2017), section 3; the paper, section 5 (CIFAR-10).

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> shares = Shards(n_shards=4).divide(torch.tensor([1, 0, 1, 0]), 2, generator=generator)
        >>> sorted(len(share) for share in shares)
        [2, 2]
    """

    n_shards: int = 80

    name = "shards"

    def __post_init__(self) -> None:
        check_count("n_shards", self.n_shards, at_least=1)

    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        n, n_shards = len(labels), self.n_shards
        if n_shards % n_rows:
            raise failure("n_shards", f"be a multiple of {n_rows}, the number of clients", n_shards)
        if n_shards > n:
            raise failure("n_shards", f"be at most {n}, the number of samples", n_shards)
        shards = labels.argsort(stable=True).tensor_split(n_shards)
        order = torch.randperm(n_shards, generator=generator).view(n_rows, -1)
        return [torch.cat([shards[i] for i in own]) for own in order.tolist()]


@final
@partitions.register
@dataclass(frozen=True, kw_only=True)
class Shuffled(Partition):
    """Independent and identically distributed rows, cut from one set shuffled every epoch.

    Example:
        >>> shares = Shuffled().divide(torch.zeros(60), 4, generator=torch.Generator())
        >>> [len(share) for share in shares]
        [60]
    """

    name = "shuffled"
    is_fixed = False

    def divide(self, labels: Tensor, n_rows: int, *, generator: torch.Generator) -> list[Tensor]:
        return [torch.arange(len(labels))]


def _dirichlet(alpha: float, n: int, generator: torch.Generator) -> Tensor:
    r"""Draws [n] proportions from the symmetric Dirichlet distribution."""
    # Gamma variates of a small alpha underflow, so they are drawn as logarithms:
    # log G(alpha) = log G(alpha + 1) + log U / alpha.
    shapes = torch.full((n,), min(alpha, _LARGEST) + 1, dtype=torch.float64)
    gammas = torch._standard_gamma(shapes, generator=generator).log()
    uniforms = (1.0 - torch.rand(n, dtype=torch.float64, generator=generator)).log()
    first = uniforms.argmax()  # relative to this one nothing overflows, however small alpha is
    return torch.softmax((uniforms - uniforms[first]) / alpha + (gammas - gammas[first]), dim=0)


def _without_empty(shares: list[Tensor]) -> list[Tensor]:
    for i in range(len(shares)):
        if len(shares[i]) == 0:
            largest = max(range(len(shares)), key=lambda j: len(shares[j]))
            shares[i], shares[largest] = shares[largest][-1:], shares[largest][:-1]
    return shares
