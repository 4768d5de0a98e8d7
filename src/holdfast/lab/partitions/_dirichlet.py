from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_positive, failure
from holdfast.lab.partitions._partition import Partition

LARGEST = 1e12
"""Beyond this alpha all proportions are equal to many digits."""


@final
@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    r"""Each class is divided among the clients in proportions drawn from a symmetric Dirichlet distribution.

    For every class, :math:`p \sim \mathrm{Dir}(\alpha, \dots, \alpha)`, and client i gets the share :math:`p_i` of its samples. Small `alpha` gives clients with few
    classes and of very different sizes, large `alpha` equal ones. A client left with nothing gets one sample of the largest client.

    Args:
        alpha: the concentration, above 0.

    Reference: Hsu, Qi and Brown, *Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification* (arXiv:1909.06335), here by
    class instead of by client, so that every sample is used.

    Example:
        >>> shares = Dirichlet(alpha=0.5).divide(torch.arange(1000) % 10, 5, generator=torch.Generator().manual_seed(0))
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
            ends = (
                (_proportions(self.alpha, n_rows, generator).cumsum(0) * len(own))
                .round()
                .long()
                .clamp(max=len(own))
            )
            for share, part in zip(shares, own.tensor_split(ends[:-1]), strict=True):
                share.append(part)
        return _none_empty([torch.cat(share) for share in shares])


def _proportions(alpha: float, n: int, generator: torch.Generator) -> Tensor:
    r"""[n] a draw from the symmetric Dirichlet distribution.

    By gamma variates on a logarithmic scale, :math:`\log G_\alpha = \log G_{\alpha + 1} + \log U / \alpha`, because with a small alpha
    they are too small for any float.
    """
    shapes = torch.full((n,), min(alpha, LARGEST) + 1, dtype=torch.float64)
    gammas = torch._standard_gamma(shapes, generator=generator).log()
    uniforms = (1.0 - torch.rand(n, dtype=torch.float64, generator=generator)).log()
    first = uniforms.argmax()  # relative to this one nothing overflows, however small alpha is
    return torch.softmax((uniforms - uniforms[first]) / alpha + (gammas - gammas[first]), dim=0)


def _none_empty(shares: list[Tensor]) -> list[Tensor]:
    for i in range(len(shares)):
        if len(shares[i]) == 0:
            largest = max(range(len(shares)), key=lambda j: len(shares[j]))
            shares[i], shares[largest] = shares[largest][-1:], shares[largest][:-1]
    return shares
