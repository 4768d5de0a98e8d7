from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_fraction, check_positive
from holdfast.lab.paper.measurements._candidates import candidate
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.lab.paper.measurements._timing import least_seconds

MOST_STEPS = 1000


@final
@dataclass(frozen=True, kw_only=True)
class BlockSpeedUp(Measurement):
    r"""How much faster a geometric median of a block is than one of all columns, by two solvers.

    `weiszfeld`: the textbook's iteration over the rows, which is the kind of oracle that Lemma 2 counts: choosing k columns and the median of these,
    against the median of all d. `holdfast`: the library's own step and median, whose cost is in reading the rows, not in iterations.

    Args:
        fraction: k / d.
        n: rows.
        d: columns.
        tolerance: at which the textbook's iteration stops: a step shorter than this share of the distance from the origin.
        n_rounds: how often each is timed; the least counts.

    Reference: the paper, Lemma 2: for :math:`k \le O(1/F - b \epsilon^2) d` the speed-up is F.
    """

    fraction: float
    n: int = 32
    d: int = 262144
    tolerance: float = 1e-6
    n_rounds: int = 3

    name = "block-speed-up"

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_positive("tolerance", self.tolerance)
        for name in ("n", "d", "n_rounds"):
            check_count(name, getattr(self, name), at_least=1)

    def measure(self) -> dict[str, Any]:
        rows = self._rows()
        generator = torch.Generator().manual_seed(0)

        def on_block() -> Tensor:
            block = torch.multinomial(
                rows.square().sum(0), round(self.fraction * self.d) or 1, generator=generator
            )
            return weiszfeld(rows[:, block], self.tolerance)

        bgmd, median = candidate(f"bgmd(fraction={self.fraction})"), candidate("geometric-median")
        times = least_seconds(
            {
                "weiszfeld": lambda: weiszfeld(rows, self.tolerance),
                "weiszfeld on block": on_block,
                "median": lambda: median(rows),
                "bgmd": lambda: bgmd(rows),
            },
            self.n_rounds,
        )
        return {
            "weiszfeld": float(f"{times['weiszfeld'] / times['weiszfeld on block']:.4g}"),
            "holdfast": float(f"{times['median'] / times['bgmd']:.4g}"),
            "seconds": {name: float(f"{seconds:.4g}") for name, seconds in times.items()},
        }

    def _rows(self) -> Tensor:
        """Rows around a common direction whose columns fall off, as gradients' do; a fifth of them far away."""
        generator = torch.Generator().manual_seed(0)
        scales = torch.arange(1, self.d + 1, dtype=torch.float32).rsqrt()[
            torch.randperm(self.d, generator=generator)
        ]
        rows = (
            torch.randn(self.d, generator=generator)
            + torch.randn(self.n, self.d, generator=generator)
        ) * scales
        rows[: self.n // 5] *= -100
        return rows


def weiszfeld(rows: Tensor, tolerance: float) -> Tensor:
    """The geometric median of rows [n, d] by Weiszfeld's iteration from their mean, as the textbook has it; for comparison alone."""
    point = rows.mean(0)
    for _ in range(MOST_STEPS):
        weights = 1 / torch.linalg.vector_norm(rows - point, dim=1).clamp_min(1e-30)
        new = (weights / weights.sum()) @ rows
        moved = torch.linalg.vector_norm(new - point)
        point = new
        if float(moved) <= tolerance * float(torch.linalg.vector_norm(point)):
            break
    return point
