from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._checks import check_instance, failure


@final
@dataclass(frozen=True, eq=False)
class Images:
    """Grey images with their labels.

    Shapes: `images` is uint8 [N, H, W] (28 by 28 in Fashion-MNIST), `labels` is int64 [N].

    Example:
        >>> images = Images(torch.full((2, 28, 28), 255, dtype=torch.uint8), torch.tensor([3, 9]))
        >>> len(images), images.scaled().shape, images.scaled().max()
        (2, torch.Size([2, 1, 28, 28]), tensor(1.))
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        _check("images", self.images, torch.uint8, "[N, H, W]")
        _check("labels", self.labels, torch.int64, "[N]")
        if len(self.images) != len(self.labels):
            raise failure("labels", f"be as many as the images ({len(self.images)})", len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    def scaled(self) -> Tensor:
        """The images as float32 [N, 1, H, W] in [0, 1]."""
        return self.images.unsqueeze(1).to(torch.float32) / 255


def _check(name: str, tensor: object, dtype: torch.dtype, shape: str) -> None:
    check_instance(name, tensor, Tensor)
    assert isinstance(tensor, Tensor)
    if tensor.dtype != dtype:
        raise failure(name, f"be {str(dtype).removeprefix('torch.')}", tensor.dtype)
    if tensor.ndim != shape.count(",") + 1:
        raise failure(name, f"have shape {shape}", tuple(tensor.shape))
