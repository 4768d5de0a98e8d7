"""Rows on which certificates of a geometric median are likely to be false."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.seeds import stream

TOLERANCES = (1e-6, 1e-8, 1e-10, 1e-12)


@dataclass(frozen=True)
class Instance:
    """Rows [n, d] with weights of sum 1 (or None for equal ones), and the tolerance to ask for.

    `n_near`, if given, asks for the median of the means of each row's nearest `n_near` rows.
    """

    rows: Tensor
    row_weights: Tensor | None
    tolerance: float
    n_near: int | None = None

    def points(self) -> Tensor:
        """The rows that the median is taken of, float64."""
        rows = self.rows.double()
        if self.n_near is None:
            return rows
        # The rows are small integers and n_near is a power of two, so all of this is exact.
        squared = (rows[:, None] - rows).square().sum(2)
        nearest = squared.argsort(dim=1, stable=True)[:, : self.n_near]
        return rows[nearest].mean(1)


def normal(*shape: int, at: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=at, dtype=torch.float64)


def integer(low: int, high: int, at: torch.Generator) -> int:
    """One of low, ..., high."""
    return int(torch.randint(low, high + 1, (1,), generator=at))


def power(low: float, high: float, at: torch.Generator) -> float:
    """A power of ten, uniform in its exponent."""
    return float(10 ** (low + (high - low) * torch.rand(1, generator=at, dtype=torch.float64)))


def gaussian(at: torch.Generator) -> Tensor:
    return normal(integer(1, 12, at), integer(1, 8, at), at=at)


def scaled(at: torch.Generator) -> Tensor:
    return gaussian(at) * (1e12 if integer(0, 1, at) else 1e-12)


def collinear(at: torch.Generator) -> Tensor:
    """Multiples of one direction: no curvature along it, a segment of medians if n is even."""
    n, d = integer(2, 11, at), integer(1, 6, at)
    multiples = torch.randint(-9, 10, (n, 1), generator=at).double()
    direction = torch.randint(-4, 5, (1, d), generator=at).double()
    return multiples * (direction if integer(0, 1, at) else normal(1, d, at=at))


def nearly_collinear(at: torch.Generator) -> Tensor:
    rows = collinear(at)
    return rows + power(-12, -3, at) * normal(*rows.shape, at=at)


def lattice(at: torch.Generator) -> Tensor:
    """Few distinct distances: ties everywhere, equal rows, symmetric medians."""
    n, d = integer(2, 12, at), integer(1, 4, at)
    return torch.randint(-2, 3, (n, d), generator=at).double()


def clusters(at: torch.Generator) -> Tensor:
    """Two tight clusters of equal weight: f is nearly flat between them."""
    n, d = 2 * integer(1, 6, at), integer(2, 5, at)
    rows = power(-12, -2, at) * normal(n, d, at=at)
    rows[: n // 2, 0] += 1.0
    return rows + (normal(1, d, at=at) if integer(0, 1, at) else 0.0)


def several_clusters(at: torch.Generator) -> Tensor:
    """Clusters of different tightness, some of equal weight."""
    centers = normal(integer(2, 4, at), integer(2, 5, at), at=at)
    groups = []
    for center in centers:
        size = integer(1, 4, at)
        groups.append(center + power(-15, -1, at) * normal(size, len(center), at=at))
    return torch.cat(groups)


def far_minority(at: torch.Generator) -> Tensor:
    """A minority along a line that reaches far beyond where rows are known to be irrelevant."""
    n, d = integer(3, 11, at), integer(2, 5, at)
    rows = normal(n, d, at=at)
    n_far = (n - 1) // 2
    steps = torch.arange(1, n_far + 1).double()[:, None]
    rows[:n_far] = power(1, 13, at) * steps * normal(1, d, at=at) + rows[:n_far]
    return rows


def far_pairs(at: torch.Generator) -> Tensor:
    """Few near points, each several times, and opposite far pairs that decide between them."""
    k, far = integer(1, 3, at), power(2, 13, at)
    aside = far * power(-8, -2, at)
    near = torch.tensor([[0.0, 0.0]] * k + [[1.0, 0.0]] * k, dtype=torch.float64)
    pair = torch.tensor([[aside, far], [aside, -far]], dtype=torch.float64)
    return torch.cat([near, *[pair] * integer(1, k, at)])


def borderline(at: torch.Generator) -> Tensor:
    """A row whose weight equals the pull of the others, up to the rounding or a little more.

    Pairs in opposite directions cancel, whatever their distances. One more row pulls with its
    weight, which is that of the row in the middle.
    """
    d = integer(2, 4, at)
    rows = [torch.zeros(1, d, dtype=torch.float64), normal(1, d, at=at)]
    for _ in range(integer(1, 4, at)):
        direction = normal(1, d, at=at)
        rows += [power(-2, 2, at) * direction, -power(-2, 2, at) * direction]
    rows[1] = rows[1] + (power(-16, -4, at) if integer(0, 1, at) else 0.0) * normal(1, d, at=at)
    return torch.cat(rows)


def copies(at: torch.Generator) -> Tensor:
    """Several copies of a few rows, as nearest-neighbor mixing makes them; at times just half."""
    centers = normal(integer(2, 4, at), integer(1, 5, at), at=at)
    rows = torch.cat([row.expand(integer(1, 5, at), -1) for row in centers])
    if integer(0, 1, at):
        rows = torch.cat([rows, centers[:1].expand(len(rows), -1)])
    return rows


def half_on_one_point(at: torch.Generator) -> Tensor:
    others = gaussian(at)
    return torch.cat([others, others.new_zeros(1, others.shape[1]).expand(len(others), -1)])


def multiscale(at: torch.Generator) -> Tensor:
    """Each row has a size of its own, so that some distance is always lost against another."""
    n, d = integer(3, 10, at), integer(1, 4, at)
    sizes = torch.tensor([power(-16, 1, at) for _ in range(n)], dtype=torch.float64)
    return sizes[:, None] * normal(n, d, at=at)


def common_part(at: torch.Generator) -> Tensor:
    """A part common to all rows, so large that the inner products lose digits of the spread."""
    n, d = integer(3, 8, at), 100
    return normal(n, d, at=at) + power(-1, 6, at) * normal(1, d, at=at)


def wide(at: torch.Generator) -> Tensor:
    """Rows that take the fast pass in float32."""
    n, d = integer(2, 8, at), 100
    rows = normal(n, d, at=at)
    rows[: integer(0, (n - 1) // 2, at)] *= -(10.0 ** integer(0, 3, at))
    return rows


def wide_line(at: torch.Generator) -> Tensor:
    n = integer(3, 8, at)
    line = torch.arange(1, n + 1).double()[:, None] * normal(1, 100, at=at)
    return line + power(-3, 0, at) * normal(n, 100, at=at)


FAMILIES: dict[str, tuple[Callable[[torch.Generator], Tensor], int]] = {
    "gaussian": (gaussian, 160),
    "scaled": (scaled, 120),
    "collinear": (collinear, 160),
    "nearly collinear": (nearly_collinear, 160),
    "lattice": (lattice, 160),
    "clusters": (clusters, 200),
    "several clusters": (several_clusters, 200),
    "far minority": (far_minority, 160),
    "far pairs": (far_pairs, 120),
    "borderline": (borderline, 160),
    "copies": (copies, 120),
    "half on one point": (half_on_one_point, 80),
    "multiscale": (multiscale, 160),
    "common part": (common_part, 40),
    "wide": (wide, 40),
    "wide line": (wide_line, 40),
    "mixtures": (lattice, 120),
}
"""Samplers and how many instances of each."""


def instance(family: str, index: int) -> Instance:
    """The instance of a family: float32 if `index` is odd, with row weights for every fifth."""
    at = stream(index, family)
    if family == "mixtures":
        n_near = 2 ** integer(1, 3, at)
        n, d = n_near + integer(0, n_near - 1, at), integer(1, 4, at)
        rows = torch.randint(-9, 10, (n, d), generator=at).to(torch.float32)
        return Instance(rows, None, TOLERANCES[index % 4], n_near)
    rows = FAMILIES[family][0](at).to(torch.float32 if index % 2 else torch.float64)
    row_weights = None
    if index % 5 == 4:
        row_weights = torch.rand(len(rows), generator=at, dtype=torch.float64) + 0.01
        row_weights /= row_weights.sum()
    return Instance(rows, row_weights, TOLERANCES[index // 2 % 4])
