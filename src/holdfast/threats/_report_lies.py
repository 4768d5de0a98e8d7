"""The lying reports: a constant for all tiles, or one that depends on the tile."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.threats._report_lie import HUGE, ReportKnowledge, ReportLie, report_lies


@final
@report_lies.register
@dataclass(frozen=True, kw_only=True)
class HugeReports(ReportLie):
    """Reports of 1e9 for every tile: a block by sums or means of reports is drawn at random.

    Example:
        >>> HugeReports()(torch.ones(2, 2), torch.tensor([False, True]))
        tensor([[1.0000e+00, 1.0000e+00],
                [1.0000e+09, 1.0000e+09]])
    """

    name = "huge"
    aim = "The block, where a report counts by its size."

    def _reports(self, own: Tensor, known: ReportKnowledge) -> Tensor:
        return torch.full_like(own, HUGE, dtype=torch.float64)


@final
@report_lies.register
@dataclass(frozen=True, kw_only=True)
class ZeroReports(ReportLie):
    """Reports of zero: medians over workers fall, most where honest workers disagree.

    Example:
        >>> ZeroReports()(torch.ones(2, 2), torch.tensor([False, True]))
        tensor([[1., 1.],
                [0., 0.]])
    """

    name = "zero"
    aim = "The block: tiles that a minority of honest workers finds large are left out."

    def _reports(self, own: Tensor, known: ReportKnowledge) -> Tensor:
        return torch.zeros_like(own)


@final
@report_lies.register
@dataclass(frozen=True, kw_only=True)
class NanReports(ReportLie):
    """Reports of NaN, which spoil every comparison.

    Example:
        >>> NanReports()(torch.ones(2, 2), torch.tensor([False, True]))
        tensor([[1., 1.],
                [nan, nan]])
    """

    name = "nan"
    aim = "The block of a server that compares reports without a look at them."

    def _reports(self, own: Tensor, known: ReportKnowledge) -> Tensor:
        return torch.full_like(own, torch.nan)


@final
@report_lies.register
@dataclass(frozen=True, kw_only=True)
class StarvingReports(ReportLie):
    """Honest reports, but zero for the last layer, so that it is sent as late as possible.

    Example:
        >>> last = torch.tensor([False, True])
        >>> StarvingReports()(torch.ones(2, 2), torch.tensor([False, True]), last_layer=last)
        tensor([[1., 1.],
                [1., 0.]])
    """

    name = "starve"
    aim = "How often the last layer is in the block."
    needs = frozenset({"last_layer"})

    def _reports(self, own: Tensor, known: ReportKnowledge) -> Tensor:
        last_layer = known["last_layer"]
        assert last_layer is not None
        return own.masked_fill(last_layer.to(own.device), 0.0)


@final
@report_lies.register
@dataclass(frozen=True, kw_only=True)
class LowSignalReports(ReportLie):
    r"""Reports that send the noise first.

    Let q be `signal` over `noise`, the norm of the honest mean in a tile over the mean distance of
    honest rows from it. Liars report 1e9 for the half of the tiles with the smallest q (the smaller
    half, of an odd number) and zero for the others. The smaller q is, the stronger is an attack
    that hides in the noise of a tile.

    Example:
        >>> known = {"signal": torch.tensor([5.0, 1.0]), "noise": torch.ones(2)}
        >>> LowSignalReports()(torch.ones(2, 2), torch.tensor([False, True]), **known)
        tensor([[1.0000e+00, 1.0000e+00],
                [0.0000e+00, 1.0000e+09]])
    """

    name = "low-signal"
    aim = "The share of noise in the block."
    needs = frozenset({"signal", "noise"})

    def _reports(self, own: Tensor, known: ReportKnowledge) -> Tensor:
        signal, noise = known["signal"], known["noise"]
        assert signal is not None
        assert noise is not None
        # A tile without noise has all of its signal, also if that is zero.
        ratio = torch.where(noise > 0, signal / noise, torch.inf).to(own.device)
        lowest = ratio.argsort(stable=True)[: len(ratio) // 2]
        return own.new_zeros(len(ratio), dtype=torch.float64).index_fill_(0, lowest, HUGE)
