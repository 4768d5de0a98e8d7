"""Sources of rows from a model and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.geometry import DenseRows, Rows
from holdfast.layout import Layout
from holdfast.sources._batch_loss import LossFunction, Objective, Reduction, check_losses
from holdfast.sources._probe import check_reduction
from holdfast.sources._vectorized import write_gradients

TermsFunction = Callable[[Any, Any], Tensor]


class Source(ABC):
    """Turns a batch into rows of gradients, which carry the layout of the model's parameters.

    Parameters without `requires_grad` have no columns; a shared parameter has its columns once. The
    set of trainable parameters must not change later. `.grad`, the mode of the model and its
    parameters are not changed.

    Attributes:
        layout: the columns of each parameter.
        losses: [n] the losses of the rows of the last call; empty before the first call.
            (`LayerGrams` with a scalar loss: that loss.)
        row_weights: [n] weights, with sum 1, for which the weighted mean of the rows of the last
            call is the gradient of the whole batch; None if all are equal.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        reduction: Reduction | None = None,
        terms: TermsFunction | None = None,
    ) -> None:
        self.layout = trainable(model)
        self.model = model
        self._objective = Objective(model, loss_fn, reduction)
        if terms is not None and not callable(terms):
            raise failure("terms", "be a function of inputs and targets", type(terms).__name__)
        if terms is not None and self._objective.reduction == "sum":
            requirement = "be None if the loss is a sum, whose rows have equal weights"
            raise failure("terms", requirement, "a function")
        self._terms = terms
        self._samples = torch.empty(0, 0, dtype=torch.int64)  # of each row of the last call
        self.losses = torch.empty(0)
        self.row_weights: Tensor | None = None

    @abstractmethod
    def __call__(self, inputs: Any, targets: Any = None) -> Rows:
        """The rows of one batch; its tensors hold samples along the first dimension."""

    def samples_of(self, rows: int | Tensor) -> Tensor:
        """Indices, in the last batch, of the samples of a row or of several rows.

        Args:
            rows: the number of a row, or a mask [n] or indices of rows, such as `result.rejected`.

        Example:
            >>> from holdfast.sources import MicroBatches
            >>> source = MicroBatches(nn.Linear(3, 1), nn.MSELoss(), n_rows=4)
            >>> _ = source(torch.randn(8, 3), torch.randn(8, 1))
            >>> source.samples_of(1)
            tensor([2, 3])
            >>> source.samples_of(torch.tensor([True, False, False, True]))
            tensor([0, 1, 6, 7])
        """
        if isinstance(rows, Tensor):
            return self._samples[rows.cpu()].flatten()
        n_rows = len(self._samples)
        if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows < n_rows:
            raise failure("rows", f"be a row of the last call, which made {n_rows} rows", rows)
        return self._samples[rows]

    def _count_terms(self, batch: tuple[Any, Any], n_samples: int) -> Tensor | None:
        """[n_samples] how many terms the loss of each sample averages; None for one each."""
        if self._terms is None:
            return None
        counts = torch.as_tensor(self._terms(*batch)).detach().cpu().double()
        if counts.shape != (n_samples,):
            requirement = f"return the number of terms of each sample [{n_samples}]"
            raise failure("terms", requirement, f"shape {tuple(counts.shape)}")
        if not bool((counts >= 0).all()) or not 0 < float(counts.sum()) < float("inf"):
            requirement = "return numbers of at least 0 that are not all 0"
            raise failure("terms", requirement, counts.tolist())
        return counts

    def _finish(self, losses: Tensor, n_samples: int, n_rows: int, counts: Tensor | None) -> None:
        """Set the attributes that describe the last call; `counts` are terms of rows [n_rows]."""
        self.losses = losses
        self._samples = torch.arange(n_samples).view(n_rows, -1)
        is_equal = counts is None or bool((counts == counts[0]).all())
        self.row_weights = None if counts is None or is_equal else counts / counts.sum()


class DenseSource(Source):
    """A source that writes its rows to a matrix, which the next call overwrites."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        reduction: Reduction | None,
        terms: TermsFunction | None,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        super().__init__(model, loss_fn, reduction, terms)
        self._scaler = check_scaler(scaler)
        self._rows: Tensor | None = None
        self._reduction_is_known = False

    def _check_reduction(self, batch: Any, n_rows: int) -> None:
        # The two reductions give one row the same scale.
        if n_rows > 1 and not self._reduction_is_known:
            self._reduction_is_known = check_reduction(self._objective, batch)

    def _all_at_once(
        self, batch: Any, rows: Tensor, *, chunk: int
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Write rows by `torch.func.vmap`, `chunk` at a time; tensors of the batch are [n, b, ...].

        Returns the losses [n], and buffers with their new values.
        """
        factor = self._objective.factor(len(rows)) * loss_scale(self._scaler, rows)
        return write_gradients(
            self._objective, self.layout, batch, rows, factor=factor, chunk=chunk
        )

    def _check_losses(self, losses: Tensor, counts: Tensor | None) -> None:
        # With a scaler a step whose losses overflow is skipped later, as in any torch loop. The
        # mean of no terms is NaN, and such a row has weight zero.
        if self._scaler is None:
            check_losses(losses if counts is None else losses[(counts > 0).to(losses.device)])

    def _rows_of(self, rows: Tensor) -> DenseRows:
        scale = loss_scale(self._scaler, rows)
        return self.layout.rows(rows if scale == 1.0 else rows.mul_(1.0 / scale))


def trainable(model: nn.Module) -> Layout:
    """The layout of a model whose trainable parameters share one dtype and one device."""
    if not isinstance(model, nn.Module):
        raise failure("model", "be a torch.nn.Module", type(model).__name__)
    layout = Layout(model)
    kinds = {(str(parameter.dtype), str(parameter.device)) for parameter in layout.parameters}
    if len(kinds) > 1:
        requirement = "have its trainable parameters in one dtype and on one device"
        raise failure("model", requirement, sorted(kinds))
    return layout


def check_scaler(scaler: torch.amp.GradScaler | None) -> torch.amp.GradScaler | None:
    """The gradient scaler; None if there is none or it is disabled."""
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise failure("scaler", "be a torch.amp.GradScaler", type(scaler).__name__)
    return scaler if scaler is not None and scaler.is_enabled() else None


def loss_scale(scaler: torch.amp.GradScaler | None, like: Tensor) -> float:
    """The factor by which the scaler multiplies a loss; 1 without a scaler."""
    return 1.0 if scaler is None else float(scaler.scale(torch.ones((), device=like.device)))


def check_same_parameters(model: nn.Module, layout: Layout) -> None:
    """Check that the trainable parameters of the model are those of the layout."""
    now = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    then = dict(zip(map(id, layout.parameters), layout.names, strict=True))
    changed = [name for key, name in (now | then).items() if key not in now or key not in then]
    if changed:
        requirement = "have the trainable parameters it had when the source was made"
        raise failure("model", f"{requirement} (make a new one)", f"another {changed[0]!r}")


def write_row(layout: Layout, gradients: Sequence[Tensor | None], row: Tensor) -> None:
    """Write one gradient per parameter, None for zero, to the row [d]."""
    for piece, gradient in zip(layout.split(row), gradients, strict=True):
        if gradient is None:
            piece.zero_()
        else:
            piece.copy_(gradient.to_dense() if gradient.is_sparse else gradient)


def row_buffer(buffer: Tensor | None, n: int, layout: Layout) -> Tensor:
    """[n, d] the buffer if its shape, dtype and device still fit, else a new one."""
    first = layout.parameters[0]
    wanted = ((n, layout.d), first.dtype, first.device)
    if buffer is not None and (buffer.shape, buffer.dtype, buffer.device) == wanted:
        return buffer
    with torch.inference_mode(False):  # the buffer outlives this call
        return torch.empty(n, layout.d, dtype=first.dtype, device=first.device)
