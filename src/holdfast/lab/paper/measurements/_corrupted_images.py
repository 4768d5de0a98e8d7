import base64
import io
from dataclasses import dataclass
from typing import Any, final

import torch
from PIL import Image
from torch import Tensor

from holdfast.checks import check_count
from holdfast.lab.data import load
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.seeds import stream
from holdfast.threats import Blur, Corruption, GaussianNoise, SaltAndPepper

CORRUPTIONS: dict[str, Corruption] = {
    "Gaussian noise": GaussianNoise(),
    "Salt and pepper": SaltAndPepper(),
    "Gaussian blur": Blur(),
}


@final
@dataclass(frozen=True, kw_only=True)
class CorruptedImages(Measurement):
    """Images before and after each corruption of features.

    Args:
        data: the data set.
        n: how many images, each of another class.
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
        firsts = torch.tensor(
            [
                int((data.train.labels == label).nonzero()[0])
                for label in range(min(self.n, data.n_classes))
            ]
        )
        images, labels = data.train.batch(firsts)
        all_of_them = torch.ones(len(images), dtype=torch.bool)
        versions = [images]
        for name, corruption in CORRUPTIONS.items():
            versions.append(
                corruption(images, labels, all_of_them, generator=stream(self.seed, name))[0]
            )
        rows = [
            {
                "label": data.classes[int(label)],
                "pictures": [_png(version[i]) for version in versions],
            }
            for i, label in enumerate(labels)
        ]
        return {"columns": ["Original", *CORRUPTIONS], "rows": rows}


def _png(image: Tensor) -> str:
    """The image [C, H, W], cut to [0, 1], as a PNG in base64."""
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    picture = Image.fromarray((pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)).numpy())
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
