"""Measurements that are pictures: points in the plane, and corrupted images."""

import base64
import io
import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any, final

import torch
from PIL import Image
from torch import Tensor

from holdfast.aggregators import CoordinateMedian, GeometricMedian, Mean
from holdfast.checks import check_count, check_share
from holdfast.lab.data import load
from holdfast.lab.paper.measurements._measurement import Measurement, measurements
from holdfast.seeds import stream
from holdfast.threats import (
    Adversaries,
    Blur,
    Corruption,
    GaussianNoise,
    NoisyRows,
    SaltAndPepper,
)

RULES = {
    "mean": Mean(),
    "coordinate median": CoordinateMedian(),
    "geometric median": GeometricMedian(),
}

CENTER = torch.tensor([2.0, 2.0])

CORRUPTIONS: dict[str, Corruption] = {
    "Gaussian noise": GaussianNoise(),
    "Salt and pepper": SaltAndPepper(),
    "Gaussian blur": Blur(),
}


@final
@measurements.register
@dataclass(frozen=True, kw_only=True)
class ToyMedian(Measurement):
    """Points in the plane around (2, 2), some with noise N(0, 100), and estimates of the center.

    Args:
        bad_fraction: share of points with noise.
        n: number of points.
        n_draws: number of draws for the errors, root mean square distances from (2, 2).
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
        estimates = {label: rule(points) for label, rule in RULES.items()} | {"truth": CENTER}
        squares: dict[str, list[float]] = {label: [] for label in RULES}
        for draw in range(self.n_draws):
            drawn, _ = self._draw(draw)
            for label, rule in RULES.items():
                squares[label].append(float((rule(drawn) - CENTER).square().sum()))
        errors = {label: math.sqrt(fmean(some)) for label, some in squares.items()}
        return {
            "good": _plain(points[~bad]),
            "bad": _plain(points[bad]),
            "estimates": {
                label: [round(float(x), 4) for x in point] for label, point in estimates.items()
            },
            "errors": {label: float(f"{error:.4g}") for label, error in errors.items()},
        }

    def _draw(self, draw: int) -> tuple[Tensor, Tensor]:
        """Return the points [n, 2], and which of them are bad [n]."""
        generator = stream(self.seed, "toy", draw)
        points = torch.randn(self.n, 2, generator=generator) + CENTER
        bad = Adversaries(bad_fraction=self.bad_fraction).draw(self.n, generator=generator)
        if bool(bad.any()):
            points = NoisyRows()(points, bad, generator=generator)
        return points, bad


def _plain(points: Tensor) -> list[list[float]]:
    return [[round(float(x), 3) for x in point] for point in points]


@final
@measurements.register
@dataclass(frozen=True, kw_only=True)
class CorruptedImages(Measurement):
    """Images before and after each corruption of features.

    Args:
        data: name of the data set.
        n: number of images, each of another class.
        seed: root of the random numbers.

    Reference: the paper, figure of feature corruption.
    """

    data: str = "fashion-mnist-slice"
    n: int = 4
    seed: int = 0

    name = "corrupted-images"

    def __post_init__(self) -> None:
        check_count("n", self.n, at_least=1)
        check_count("seed", self.seed)

    def measure(self) -> dict[str, Any]:
        data = load(self.data)
        classes = range(min(self.n, data.n_classes))
        firsts = [int((data.train.labels == label).nonzero()[0]) for label in classes]
        images, labels = data.train.batch(torch.tensor(firsts))
        bad = torch.ones(len(images), dtype=torch.bool)
        versions = [images]
        for name, corruption in CORRUPTIONS.items():
            corrupted, _ = corruption(images, labels, bad, generator=stream(self.seed, name))
            versions.append(corrupted)
        rows = [
            {"label": data.classes[label], "pictures": [_png(version[i]) for version in versions]}
            for i, label in enumerate(classes)
        ]
        return {"columns": ["Original", *CORRUPTIONS], "rows": rows}


def _png(image: Tensor) -> str:
    """Return the image [C, H, W], clamped to [0, 1], as a PNG in base64."""
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    picture = Image.fromarray((pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)).numpy())
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
