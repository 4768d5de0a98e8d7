"""Images in batches, and data sets with their constants for normalization."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from holdfast.lab.data import DataSet, Images, load


def images(*shape: int) -> Images:
    return Images(
        torch.arange(torch.Size(shape).numel()).remainder(251).to(torch.uint8).view(shape),
        torch.arange(shape[0]) % 3,
    )


def data_set(**changes: Any) -> DataSet:
    fields: dict[str, Any] = {
        "train": images(6, 2, 4, 5),
        "test": images(3, 2, 4, 5),
        "classes": ("a", "b", "c"),
    }
    return DataSet(
        **({"name": "x", **fields, "mean": (0.5, 0.1), "deviation": (0.5, 2.0)} | changes)
    )


def test_a_batch_equals_scaling_everything() -> None:
    shapes = {(5, 4, 3): (1, 4, 3), (5, 2, 4, 3): (2, 4, 3), (0, 3, 4, 3): (3, 4, 3)}
    for shape, expected in shapes.items():
        all_of_them = images(*shape)
        assert all_of_them.shape == expected
        assert all_of_them.scaled().shape == (shape[0], *expected)
        indices = torch.tensor([3, 0, 3] if shape[0] else [], dtype=torch.int64)
        pixels, labels = all_of_them.batch(indices)
        assert pixels.dtype == torch.float32
        assert torch.equal(pixels, all_of_them.scaled()[indices])
        assert torch.equal(labels, all_of_them.labels[indices])


def test_scaled_images_are_floats_from_0_to_1() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(2, 8, 16)
    scaled = Images(pixels, torch.tensor([0, 1])).scaled()
    assert scaled.dtype == torch.float32
    assert scaled.shape == (2, 1, 8, 16)
    assert (scaled.min().item(), scaled.max().item()) == (0, 1)
    assert torch.equal((scaled * 255).round().to(torch.uint8).squeeze(1), pixels)


GRAY, TWO = torch.zeros(2, 28, 28).byte(), torch.zeros(2).long()
BAD_IMAGES: list[tuple[Any, Any, str]] = [
    (GRAY.double(), TWO, "`images` must be uint8 or float32, got torch.float64."),
    (GRAY[:, 0, 0], TWO, "`images` must have shape [N, ...], got (2,)."),
    (GRAY, TWO.byte(), "`labels` must be int64, got torch.uint8."),
    (GRAY, TWO.view(2, 1), "`labels` must have shape [N], got (2, 1)."),
    (GRAY, torch.zeros(3).long(), "`labels` must be as many as the images (2), got 3."),
    (GRAY, [0, 1], "`labels` must be a Tensor, got list."),
]


def test_bad_images_are_refused() -> None:
    for pixels, labels, message in BAD_IMAGES:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            Images(pixels, labels)


def test_a_batch_scales_no_more_than_itself() -> None:
    seen: list[int] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dtype == torch.float32:
                seen.append(len(result))
            return result

    many = images(500, 8, 8)
    with Watch():
        many.batch(torch.tensor([1, 2]))
    assert set(seen) == {2}


def test_indices_of_another_type_are_refused() -> None:
    for wrong in ([0.0], 1, [True], torch.tensor([1], dtype=torch.uint8)):
        indices = torch.as_tensor(wrong)
        got = f"{indices.dtype} {list(indices.shape)}"
        message = f"`indices` must be an int64 tensor [b], got {got}."
        with pytest.raises(ValueError, match=re.escape(message)):
            images(5, 4, 3).batch(indices)


def test_moving_keeps_everything() -> None:
    data = data_set()
    moved = data.to("meta")
    assert {moved.train.images.device.type, moved.test.labels.device.type} == {"meta"}
    assert (moved.shape, moved.classes, moved.mean, len(moved.train)) == (
        data.shape,
        data.classes,
        data.mean,
        6,
    )


def test_normalization_is_per_channel_and_keeps_the_dtype() -> None:
    data = data_set()
    pixels = torch.rand(7, 2, 4, 5, dtype=torch.float64)
    normal = data.normalize(pixels)
    assert normal.dtype == torch.float64
    assert torch.allclose(normal[:, 0], (pixels[:, 0] - 0.5) / 0.5)
    assert torch.allclose(normal[:, 1], (pixels[:, 1] - 0.1) / 2.0)


def test_the_constants_normalize_the_slice() -> None:
    data = load("fashion-mnist-slice")
    normal = data.normalize(data.train.scaled())
    assert abs(normal.mean().item()) < 0.01
    assert abs(normal.std().item() - 1) < 0.01
    assert data.n_classes == 10


@pytest.mark.parametrize(
    "pixels", [torch.zeros(1, 3, 4, 5), torch.zeros(2, 4, 5), torch.zeros(1, 2, 4, 5).byte(), None]
)
def test_only_floating_images_with_the_same_channels_are_normalized(pixels: Any) -> None:
    with pytest.raises(
        ValueError, match=re.escape("`images` must be a floating tensor [b, 2, H, W], got ")
    ):
        data_set().normalize(pixels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"test": images(3, 2, 4, 4)},
            "`test` must have images of shape (2, 4, 5), like the training images, got (2, 4, 4).",
        ),
        ({"train": None}, "`train` must be an Images, got NoneType."),
        ({"classes": ("a", "b")}, "`train` must have labels from 0 to 1, got 0 to 2."),
        ({"mean": (0.5,)}, "`mean` must have one number per channel (2), got 1."),
        ({"deviation": (0.5, 0.0)}, "`deviation` must be above 0, got (0.5, 0.0)."),
    ],
)
def test_inconsistent_parts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        data_set(**changes)


def test_a_negative_label_is_refused() -> None:
    bad = replace(images(3, 2, 4, 5), labels=torch.tensor([0, -1, 2]))
    with pytest.raises(ValueError, match=r"^`test` must have labels from 0 to 2, got -1 to 2\.$"):
        data_set(test=bad)
