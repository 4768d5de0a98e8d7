from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_fraction, failure
from holdfast.threats._attack import GENERATOR, NOTHING, Attack, attacks
from holdfast.threats._attack_context import AttackContext, uniform


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class IeeeBitFlips(Attack):
    """The own gradient with flipped bits in its binary form, as by faulty memory.

    Each entry is hit with probability `fraction`, independently; at 1 no generator is needed. In an
    entry that is hit, all `bits` of its IEEE-754 form are flipped; bit 0 is the lowest. In float32
    the default is the highest bit of the mantissa, the two highest of the exponent, and the sign:
    numbers below 2 become about 2^64 times as large with the other sign, larger ones as much
    smaller, and some become NaN. Half precision has 16 bits and needs other `bits`. In float64 the
    default changes almost nothing (62 is the highest exponent bit, 63 the sign).

    Reference: Xie et al., *Generalized Byzantine-tolerant SGD* (arXiv:1802.10116), the bit-flip
    failures of the experiments, there only in the first entries.

    Example:
        >>> IeeeBitFlips(bits=(31,))(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
        tensor([[ 1.],
                [-2.]])
    """

    bits: tuple[int, ...] = (22, 29, 30, 31)
    fraction: float = 1.0

    name = "ieee-bit-flips"
    aim = "The distance of the mean from the honest mean, by orders of magnitude: it diverges."
    saturates = False

    def __post_init__(self) -> None:
        is_list = isinstance(self.bits, (tuple, list))
        if not is_list or not self.bits or len(set(self.bits)) < len(self.bits):
            raise failure("bits", "be distinct positions of bits, at least one", self.bits)
        object.__setattr__(self, "bits", tuple(self.bits))  # JSON has only lists
        for bit in self.bits:
            check_count("bits", bit)
        check_fraction("fraction", self.fraction)

    @property
    def needs(self) -> frozenset[str]:
        return GENERATOR if self.fraction < 1 else NOTHING

    def _bad_rows(self, context: AttackContext) -> Tensor:
        own, width = context.own, 8 * context.rows.element_size()
        if max(self.bits) >= width:
            raise failure("bits", f"be below {width}, the width of {own.dtype}", max(self.bits))
        pattern = sum(1 << bit for bit in self.bits)
        # The top bit is the sign of the integer.
        signed = pattern - (1 << width) if pattern >> (width - 1) else pattern
        integers = own.view({16: torch.int16, 32: torch.int32, 64: torch.int64}[width])
        flipped = (integers ^ signed).view(own.dtype)
        if self.fraction == 1:
            return flipped
        is_hit = uniform(tuple(own.shape), context.generator, own) < self.fraction
        return torch.where(is_hit, flipped, own)
