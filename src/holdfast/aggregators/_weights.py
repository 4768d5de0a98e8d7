"""Row weights of the simplest kinds: float64 on the CPU, with sum 1."""

import torch
from torch import Tensor


def one_hot(index: int, n: int) -> Tensor:
    """[n] all weight on one row."""
    return equal_weights(torch.tensor([index]), n)


def equal_weights(indices: Tensor, n: int) -> Tensor:
    """[n] equal weights on the rows at `indices`."""
    return torch.zeros(n, dtype=torch.float64).index_fill_(0, indices, 1.0 / len(indices))
