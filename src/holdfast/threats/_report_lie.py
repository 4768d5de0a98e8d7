from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypedDict, Unpack

import torch
from torch import Tensor

from holdfast.checks import check_mask, failure, shape_of
from holdfast.registry import Registry

HUGE = 1e9
"""A report that no honest worker reaches."""


class ReportKnowledge(TypedDict, total=False):
    """Keyword arguments of every call of a lie: what liars may know."""

    last_layer: Tensor | None
    signal: Tensor | None
    noise: Tensor | None


class ReportLie(ABC):
    """Replaces the reports of liars: the norms of tiles by which workers agree on a block.

    Lies are immutable and never change their input; honest reports are returned bitwise unchanged.
    """

    name: ClassVar[str]
    """The name in texts such as `"huge"`."""

    aim: ClassVar[str]
    """The quantity that the lie changes, in one sentence."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Those of `last_layer`, `signal` and `noise` that every call must pass."""

    def __call__(self, reports: Tensor, mask: Tensor, **known: Unpack[ReportKnowledge]) -> Tensor:
        """[n, T] the reports that arrive; a lie ignores arguments that it does not need.

        Args:
            reports: [n, T] floating, the norms of T tiles that n workers found.
            mask: bool [n], True for liars.
            **known: any of the following.

                - `last_layer`: bool [T], True for tiles of the last layer.
                - `signal`: [T] norms of the honest mean in each tile.
                - `noise`: [T] mean distances of honest rows from it in each tile.
        """
        _check(reports, mask, known)
        for name in sorted(self.needs):
            if known.get(name) is None:
                raise failure(name, f"be given to {self!r}", None)
        sent = reports.detach().clone()
        if bool(mask.any()):
            at = mask.to(sent.device)
            limit = torch.finfo(sent.dtype).max
            # Beyond the range of 16 bits, a huge report is the largest one; a NaN stays.
            sent[at] = self._reports(sent[at], known).clamp(max=limit).to(sent.dtype)
        return sent

    @abstractmethod
    def _reports(self, own: Tensor, known: ReportKnowledge) -> Tensor:
        """What liars report: [n_bad, T] or [T], from their `own` honest reports [n_bad, T]."""


report_lies: Registry[ReportLie] = Registry("report lie")
"""All lying reports by name: `report_lies.parse("starve")`."""


def _check(reports: Any, mask: Tensor, known: ReportKnowledge) -> None:
    if not isinstance(reports, Tensor) or not reports.is_floating_point() or reports.ndim != 2:
        raise failure("reports", "be a floating tensor [n, T]", shape_of(reports))
    check_mask(mask, len(reports))
    for name, value in known.items():
        if value is not None and shape_of(value) != tuple(reports.shape[1:]):
            requirement = f"be a tensor [{reports.shape[1]}], one entry per tile"
            raise failure(name, requirement, shape_of(value))
