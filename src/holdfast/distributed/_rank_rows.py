"""A row per rank, and all rows on every rank."""

import time
from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import check_instance
from holdfast.distributed._ranks import Ranks
from holdfast.distributed._replicas import SharedBuffers
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows
from holdfast.seeds import stream
from holdfast.sources import DenseSource, LossFunction, MicroBatches, Reduction


@final
class RankRows(DenseSource):
    """`MicroBatches` with one rank per slice: rank i computes row i, every rank gets all rows.

    All ranks pass the same batch. Everything after it (an attack, a rule, the optimizer) then runs
    on every rank with equal rows, and gives equal parameters if it is deterministic and the ranks
    have the same kind of device. Any rule and any step can be used, as in one process. The rows
    take the memory and the traffic of n models per rank; :func:`guard` needs that of one or two.

    As in `MicroBatches`, running statistics and other buffers are combined by the coordinate
    median. Every rank has its own dropout noise, from a seed that is drawn from torch's generator:
    seed that generator equally on all ranks. If a rank cannot compute its row, its error is raised
    on all ranks. A loss that is not finite raises no error but makes a row that is not finite.

    Args:
        model: the module of this rank, with the same parameters and buffers on all ranks.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar.
        ranks: the ranks.
        reduction: "mean" or "sum", as in `MicroBatches`.
        vectorized: whether the slice is computed by `torch.func.vmap`; by default as `MicroBatches`
            decides for all slices, so that rows are the same as in one process, up to rounding.

    Attributes:
        seconds: [n] the time of each rank for its row in the last call.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        ranks: Ranks,
        *,
        reduction: Reduction | None = None,
        vectorized: bool | None = None,
    ) -> None:
        super().__init__(model, loss_fn, reduction, None, None)
        check_instance("ranks", ranks, Ranks)
        self._ranks, self._vectorized = ranks, vectorized
        self._slices = MicroBatches(model, loss_fn, n_rows=ranks.n, reduction=reduction)
        self._own = {
            way: MicroBatches(model, loss_fn, n_rows=1, reduction=reduction, vectorized=way)
            for way in (False, True)
        }
        self._buffers = SharedBuffers(model.buffers, ranks.group)
        self.seconds: list[float] = []

    def __call__(self, inputs: Any, targets: Any = None) -> DenseRows:
        """The rows of one batch, which is the same on all ranks."""
        n, ranks = self._ranks.n, self._ranks
        own, size = self._slices.slice_of(ranks.rank, inputs, targets)
        self._check_reduction((inputs, targets), n)
        before = [buffer.detach().clone() for buffer in self.model.buffers()]
        began, failed = time.perf_counter(), None
        try:
            row, loss = self._row(own, (inputs, targets))
        except Exception as error:  # the others learn of it before this rank raises it
            failed, row = error, torch.full((self.layout.d,), torch.nan)
            loss = torch.tensor(torch.nan)
        first = self.layout.parameters[0]
        seconds = time.perf_counter() - began
        figures = [float(loss), seconds, float(failed is not None)]
        ranks.begin_step()
        rows = ranks.gather(row.to(first))
        found = ranks.gather(torch.tensor(figures, dtype=torch.float64, device=ranks.device))
        self.seconds = [round(one, 6) for one in found[:, 1].tolist()]
        losses = found[:, 0].to(loss.dtype)
        try:
            if bool(found[:, 2].any()):
                ranks.together(lambda: _raise(failed))
            self._check_losses(losses, None)
        except Exception:
            for buffer, value in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(value)
            raise
        with ranks.naming():
            self._buffers.combine()
        self._finish(losses, n * size, n, None)
        return self._rows_of(rows)

    def _row(self, own: tuple[Any, Any], batch: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        """[d] the gradient of this rank's slice, and its loss; NaN if the loss is not finite."""
        if self._vectorized is None and self._slices.is_vectorized(*batch):
            try:
                return self._computed(own, vectorized=True)
            except ValueError:  # only tried, as in MicroBatches
                self._vectorized = False
        return self._computed(own, vectorized=bool(self._vectorized))

    def _computed(self, own: tuple[Any, Any], *, vectorized: bool) -> tuple[Tensor, Tensor]:
        seed = int(torch.randint(2**62, ()))
        device = self.layout.parameters[0].device
        devices = [] if device.type == "cpu" else [device]
        with torch.random.fork_rng(devices, device_type=device.type):
            torch.manual_seed(stream(seed, "rank", self._ranks.rank).initial_seed())
            source = self._own[vectorized]
            try:
                row = source(*own).matrix()[0] * self._objective.factor(self._ranks.n)
            except NonFiniteRowsError:
                lost = torch.full((self.layout.d,), torch.nan, device=device)
                return lost, torch.tensor(torch.nan, device=device)
            return row, source.losses[0]


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
