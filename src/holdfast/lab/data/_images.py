from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_instance, failure


@final
@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels, as bytes.

    Shapes: `images` is uint8 [N, H, W] (grey) or [N, C, H, W], `labels` is int64 [N].

    Example:
        >>> images = Images(torch.full((2, 28, 28), 255, dtype=torch.uint8), torch.tensor([3, 9]))
        >>> len(images), images.shape, images.scaled().max()
        (2, (1, 28, 28), tensor(1.))
        >>> pixels, labels = images.batch(torch.tensor([1]))
        >>> pixels.shape, labels
        (torch.Size([1, 1, 28, 28]), tensor([9]))
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        _check("images", self.images, torch.uint8, "[N, H, W]", "[N, C, H, W]")
        _check("labels", self.labels, torch.int64, "[N]")
        if len(self.images) != len(self.labels):
            raise failure(
                "labels", f"be as many as the images ({len(self.images)})", len(self.labels)
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        height, width = self.images.shape[-2:]
        return (self.images.shape[1] if self.images.ndim == 4 else 1), height, width

    def scaled(self) -> Tensor:
        """All images as float32 [N, C, H, W] in [0, 1]: four times the memory of the bytes."""
        return self._scale(self.images)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The images at `indices` [b] as float32 [b, C, H, W] in [0, 1], and their labels [b].

        The bytes are gathered first and scaled then, so that no more than the batch is ever held as floats.
        """
        check_instance("indices", indices, Tensor)
        if indices.dtype not in (torch.int64, torch.int32) or indices.ndim != 1:
            raise failure(
                "indices", "be an int64 tensor [b]", f"{indices.dtype} {list(indices.shape)}"
            )
        indices = indices.to(self.images.device)
        return self._scale(self.images[indices]), self.labels[indices]

    def to(self, device: str | torch.device) -> "Images":
        """The same images on another device."""
        return Images(self.images.to(device), self.labels.to(device))

    @staticmethod
    def _scale(images: Tensor) -> Tensor:
        with_channels = images if images.ndim == 4 else images.unsqueeze(1)
        return with_channels.to(torch.float32) / 255


def _check(name: str, tensor: object, dtype: torch.dtype, *shapes: str) -> None:
    check_instance(name, tensor, Tensor)
    assert isinstance(tensor, Tensor)
    if tensor.dtype != dtype:
        raise failure(name, f"be {str(dtype).removeprefix('torch.')}", tensor.dtype)
    if tensor.ndim not in [shape.count(",") + 1 for shape in shapes]:
        raise failure(name, f"have shape {' or '.join(shapes)}", tuple(tensor.shape))
