import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import CoordinateMedian, GeometricMedian, Mean
from holdfast.checks import check_count, check_share
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.seeds import stream
from holdfast.threats import Adversaries, NoisyRows

RULES = {
    "mean": Mean(),
    "coordinate median": CoordinateMedian(),
    "geometric median": GeometricMedian(),
}


@final
@dataclass(frozen=True, kw_only=True)
class ToyMedian(Measurement):
    """Points of the plane around (2, 2), some of them with noise N(0, 100) on them, and where rules put the centre.

    Args:
        bad_fraction: the share with noise.
        n: how many points.
        n_draws: how often all is drawn anew for the errors: root mean square distances from (2, 2).
        seed: root of the random numbers.

    Reference: the paper, figure of the toy example in two dimensions.
    """

    bad_fraction: float
    n: int = 100
    n_draws: int = 200
    seed: int = 0

    name = "toy-median"

    def __post_init__(self) -> None:
        check_share("bad_fraction", self.bad_fraction, below=0.5)
        check_count("n", self.n, at_least=2)
        check_count("n_draws", self.n_draws, at_least=1)
        check_count("seed", self.seed)

    def measure(self) -> dict[str, Any]:
        points, bad = self._draw(0)
        squares: dict[str, list[float]] = {label: [] for label in RULES}
        for draw in range(self.n_draws):
            drawn, _ = self._draw(draw)
            for label, rule in RULES.items():
                squares[label].append(float((rule(drawn) - CENTRE).square().sum()))
        return {
            "good": _plain(points[~bad]),
            "bad": _plain(points[bad]),
            "estimates": {
                label: [round(float(x), 4) for x in rule(points)] for label, rule in RULES.items()
            }
            | {"truth": CENTRE.tolist()},
            "errors": {
                label: float(f"{math.sqrt(fmean(some)):.4g}") for label, some in squares.items()
            },
        }

    def _draw(self, draw: int) -> tuple[Tensor, Tensor]:
        """The points [n, 2], and who is bad [n]."""
        generator = stream(self.seed, "toy", draw)
        points = torch.randn(self.n, 2, generator=generator) + CENTRE
        bad = Adversaries(bad_fraction=self.bad_fraction).draw(self.n, generator=generator)
        return (NoisyRows()(points, bad, generator=generator) if bool(bad.any()) else points), bad


CENTRE = torch.tensor([2.0, 2.0])


def _plain(points: Tensor) -> list[list[float]]:
    return [[round(float(x), 3) for x in point] for point in points]
