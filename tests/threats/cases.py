"""All attacks and corruptions, with arguments that make sense for every dtype."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from holdfast.seeds import stream
from holdfast.threats import Attack, Corruption, attacks, corruptions

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@dataclass(frozen=True)
class Case:
    text: str
    lacks: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.text

    @property
    def attack(self) -> Attack:
        return attacks.parse(self.text)

    @property
    def corruption(self) -> Corruption:
        return corruptions.parse(self.text)


FIXED_SIZE = {"scales with the rows": "has values of a fixed size"}
BITS = {"rounds half precision once": "flips the bits of the dtype itself"}

ATTACKS = [
    *map(Case, (
        "bounded-distance", "bounded-distance(direction='sign')",
        "bounded-distance(direction='std')", "bounded-distance(bound='sum')",
        "bounded-distance(bound='sum', direction='sign')",
        "bounded-distance(bound='sum', direction='std')", "collapse", "huddle",
        "huddle(direction='std')", "huddle(direction='first-layer')", "huddle(direction='class')",
        "huddle(direction='true-gradient')", "huddle(direction='wrong-labels')",
        "huddle(direction='drift')", "inner-product",
        "inner-product(factor=0.1)", "inner-product(factor='optimized')", "lazy-rows",
        "late(start=0) | huddle(direction='std')", "late(start=0) | scaled-flip(factor=5.0)",
        "little-is-enough", "little-is-enough(z=1.5)", "little-is-enough(z='optimized')", "mimic",
        "non-finite", "non-finite(value='inf')", "non-finite(value='-inf')", "scaled-flip",
        "scaled-flip(factor=5.0)", "scaled-flip(factor=1.0)", "scaled-flip(factor=0.0)", "shadow",
        "shadow(fraction=0.5)",
    )),
    *(Case(text, FIXED_SIZE) for text in (
        "hijack", "hijack(columns=3, size=100.0)", "hijack(columns=0.2, size=1e18, lie=1000.0)",
        "hijack(columns=0.8, size=100.0, lie=5.0)", "noisy-rows", "noisy-rows(deviation=0.5)",
        "noisy-rows(deviation=200.0, replace=True)",
    )),
    *(Case(text, BITS) for text in (
        "ieee-bit-flips(bits=(3, 14, 15))", "ieee-bit-flips(bits=(9, 13), fraction=0.3)",
    )),
]  # fmt: skip

CORRUPTIONS = [
    Case(text)
    for text in (
        "backdoor", "backdoor(target=2, size=1, value=0.5)", "blur", "blur(sigma=0.7)",
        "gaussian-noise", "gaussian-noise(deviation=0.1)", "salt-and-pepper",
        "salt-and-pepper(fraction=0.3)", "wrong-labels", "wrong-labels(labels='random')",
        "wrong-labels(labels=8)", "wrong-labels(labels=3)",
    )
]  # fmt: skip

FEATURES = {"gaussian-noise", "salt-and-pepper", "blur", "backdoor"}
"""Corruptions that change images."""
LABELS = {"wrong-labels", "backdoor"}
"""Corruptions that change labels."""


def some_bad(n: int, n_bad: int, seed: int = 0) -> Tensor:
    """A mask with `n_bad` bad ones at random places."""
    order = torch.randperm(n, generator=stream(seed, "some bad"))
    return torch.zeros(n, dtype=torch.bool).index_fill_(0, order[:n_bad], True)


def bits(rows: Tensor) -> list[int]:
    """The bytes of the rows: they tell -0.0 from 0.0, and one NaN from another."""
    found: list[int] = rows.contiguous().view(torch.uint8).flatten().tolist()
    return found


def batch(
    n: int, channels: int = 1, side: int = 9, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Images of uniform gray noise, strictly between black and white; labels from 0 to 9."""
    generator = stream(seed, "batch")
    images = 0.1 + 0.8 * torch.rand(
        n, channels, side, side, generator=generator, dtype=torch.float64
    )
    return images.to(dtype), torch.randint(10, (n,), generator=generator)


def refusal(call: Callable[..., object], *args: Any, **arguments: Any) -> str:
    """The message of the ValueError that the call raises, or "" if it raises none."""
    try:
        call(*args, **arguments)
    except ValueError as error:
        return str(error)
    return ""
