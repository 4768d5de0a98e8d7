"""The list of all attacks and corruptions, each with arguments that make sense for every dtype."""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.seeds import stream
from holdfast.threats import Attack, Corruption, attacks, corruptions

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@dataclass(frozen=True)
class Case:
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def attack(self) -> Attack:
        return attacks.parse(self.text)

    @property
    def corruption(self) -> Corruption:
        return corruptions.parse(self.text)


ATTACKS = [
    Case(text)
    for text in (
        "additive-noise", "additive-noise(deviation=0.5)", "scaled-flip", "scaled-flip(factor=5.0)", "sign-flip", "random-rows",
        "bit-flips(bits=(3, 14, 15))", "bit-flips(bits=(9, 13), fraction=0.3)", "non-finite", "non-finite(value='inf')",
        "non-finite(value='-inf')", "zero-rows", "lazy-rows", "little-is-enough", "little-is-enough(z=1.5)", "inner-product",
        "inner-product(factor=0.1)", "mimic", "min-max", "min-max(direction='sign')", "min-max(direction='std')", "min-sum",
        "min-sum(direction='sign')", "min-sum(direction='std')", "collapse", "shadow", "shadow(fraction=0.5)", "hijack",
        "hijack(n_columns=3, size=100.0)", "hijack-and-lie", "hijack-and-lie(fraction=0.4, size=100.0, lie=5.0)",
    )
]  # fmt: skip

CORRUPTIONS = [
    Case(text)
    for text in (
        "gaussian-noise", "gaussian-noise(deviation=0.1)", "salt-and-pepper", "salt-and-pepper(fraction=0.3)", "blur", "blur(sigma=0.7)",
        "target-label", "target-label(target=3)", "label-flip", "random-labels", "backdoor", "backdoor(target=2, size=1, value=0.5)",
    )
]  # fmt: skip

FEATURES = {"gaussian-noise", "salt-and-pepper", "blur", "backdoor"}
"""Corruptions that change images."""
LABELS = {"target-label", "label-flip", "random-labels", "backdoor"}
"""Corruptions that change labels."""


def some_bad(n: int, n_bad: int, seed: int = 0) -> Tensor:
    """A mask with so many bad ones, anywhere."""
    order = torch.randperm(n, generator=stream(seed, "some bad"))
    return torch.zeros(n, dtype=torch.bool).index_fill_(0, order[:n_bad], True)


def batch(
    n: int, channels: int = 1, side: int = 9, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Images of uniform grey noise, strictly between black and white, and labels from 0 to 9."""
    generator = stream(seed, "batch")
    images = 0.1 + 0.8 * torch.rand(
        n, channels, side, side, generator=generator, dtype=torch.float64
    )
    return images.to(dtype), torch.randint(10, (n,), generator=generator)
