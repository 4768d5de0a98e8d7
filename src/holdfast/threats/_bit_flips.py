from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_fraction, failure
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext, uniform


@final
@dataclass(frozen=True, kw_only=True)
class BitFlips(Attack):
    """Their own gradient with bits of its binary form flipped, as by faulty memory.

    Each entry is hit with probability `fraction`, independently; in an entry that is hit, all `bits` of its IEEE-754 form are flipped. Bit 0 is the
    lowest. In float32 the default is the highest bit of the mantissa, the two highest of the exponent, and the sign: numbers
    below 2 become some 2^64 times as large with the other sign, larger ones as much smaller, and some become NaN. Half precision has 16 bits, so it needs other `bits`; in float64 the default ones lie in the
    mantissa and change almost nothing (62 and 63 are its highest exponent bit and its sign).

    Args:
        bits: which bits, each below the width of the rows' dtype.
        fraction: the chance of an entry, in (0, 1]; at 1 no generator is needed.

    Reference: Xie et al., *Generalized Byzantine-tolerant SGD* (arXiv:1802.10116), the bit-flip failures of the experiments, there in the first
    entries alone.

    Example:
        >>> BitFlips(bits=(31,))(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[ 1.],
                [-2.]])
    """

    bits: tuple[int, ...] = (22, 29, 30, 31)
    fraction: float = 1.0

    name = "bit-flips"
    aim = "The distance of the mean from the honest mean, by many orders of magnitude: training by the mean diverges."
    saturates = False

    def __post_init__(self) -> None:
        if (
            not isinstance(self.bits, (tuple, list))
            or not self.bits
            or len(set(self.bits)) < len(self.bits)
        ):
            raise failure("bits", "be places of bits, at least one and none twice", self.bits)
        object.__setattr__(self, "bits", tuple(self.bits))  # JSON has lists alone
        for bit in self.bits:
            check_count("bits", bit)
        check_fraction("fraction", self.fraction)

    @property
    def needs_generator(self) -> bool:
        return self.fraction < 1

    def _bad_rows(self, context: AttackContext) -> Tensor:
        own, width = context.own, 8 * context.rows.element_size()
        if max(self.bits) >= width:
            raise failure("bits", f"be below {width}, the width of {own.dtype}", max(self.bits))
        pattern = sum(1 << bit for bit in self.bits)
        signed = (
            pattern - (1 << width) if pattern >> (width - 1) else pattern
        )  # the top bit is the integer's sign
        integers = own.view({16: torch.int16, 32: torch.int32, 64: torch.int64}[width])
        flipped = (integers ^ signed).view(own.dtype)
        if self.fraction == 1:
            return flipped
        return torch.where(
            uniform(tuple(own.shape), context.generator, own) < self.fraction, flipped, own
        )
