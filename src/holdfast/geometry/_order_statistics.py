"""Order statistics of each column, by a sorting network pruned to the ranks that are needed.

A comparator works on two whole rows of a chunk (one minimum, one maximum), which suits vector units
and compilers far better than sorting each column (`python -m benchmarks coordinate_rules` has the
figures). NaN spreads to every result of its column.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from holdfast.geometry._kernels import working_dtype


@lru_cache(maxsize=256)
def comparators(n: int, ranks: tuple[int, ...]) -> tuple[tuple[int, int, bool, bool], ...]:
    """Batcher's odd-even mergesort of n values, pruned to what reaches one of the `ranks`.

    Rank 0 is the smallest. Each entry is (i, j, low, high): compare positions i < j; whether the
    minimum at i and the maximum at j are needed.
    """
    network = []
    size = 1
    while size < n:
        gap = size
        while gap >= 1:
            for start in range(gap % size, n - gap, 2 * gap):
                for i in range(start, min(start + gap, n - gap)):
                    if i // (2 * size) == (i + gap) // (2 * size):
                        network.append((i, i + gap))
            gap //= 2
        size *= 2
    # From the last comparator back: one is needed if either of its outputs is.
    needed, kept = set(ranks), []
    for i, j in reversed(network):
        if i in needed or j in needed:
            kept.append((i, j, i in needed, j in needed))
            needed |= {i, j}
    return tuple(reversed(kept))


def order_statistics(n: int, ranks: tuple[int, ...]) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """A function from n tensors of one shape to their elementwise `ranks` (0 is the smallest)."""
    network = comparators(n, ranks)

    def select(values: Sequence[Tensor]) -> list[Tensor]:
        values = list(values)
        for i, j, low, high in network:
            a, b = values[i], values[j]
            if low:
                values[i] = torch.minimum(a, b)
            if high:
                values[j] = torch.maximum(a, b)
        return [values[rank] for rank in ranks]

    return select


def median(n: int) -> Callable[[Sequence[Tensor]], Tensor]:
    """A function from n tensors of one shape to their median (the mean of two middle values)."""
    select = order_statistics(n, ((n - 1) // 2, n // 2) if n % 2 == 0 else (n // 2,))

    def middle(values: Sequence[Tensor]) -> Tensor:
        found = select(values)
        # Halved first, because the sum of two large values could overflow.
        return found[0] if n % 2 else 0.5 * found[0] + 0.5 * found[1]

    return middle


def median_of_rows(values: Tensor, otherwise: Tensor) -> Tensor:
    """The median of `values` [n, ...] along n; `otherwise` [...] if half of them are not finite.

    A value with an entry that is not finite is left out. Integers take the lower median.
    """
    if not values.is_floating_point():
        return values.sort(0).values[(len(values) - 1) // 2]
    is_finite = torch.isfinite(values.reshape(len(values), -1)).all(1)
    finite = values[is_finite].to(working_dtype(values.dtype))
    if 2 * len(finite) <= len(values):
        return otherwise
    return median(len(finite))(list(finite)).to(otherwise)
