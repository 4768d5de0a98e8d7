"""What sources of rows from a model and a loss have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.geometry import DenseRows, Rows
from holdfast.layout import Layout
from holdfast.sources._objective import LossFunction, Objective, Reduction, check_losses
from holdfast.sources._vectorized import write_gradients


class Source(ABC):
    """Turns a batch into rows of gradients, which carry the layout of the model's parameters.

    Parameters that need no gradient have no columns; a parameter used in two places has its columns once. Which are trainable may not
    change afterwards. `.grad`, the mode of the model and its parameters are left as they are.

    Attributes:
        layout: which columns belong to which parameter.
        losses: [n] the losses of the rows of the last call; empty before the first. (`LayerGrams` with a scalar loss: that one.)
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, reduction: Reduction | None = None
    ) -> None:
        self.layout = trainable(model)
        self.model = model
        self._objective = Objective(model, loss_fn, reduction)
        self.losses = torch.empty(0)

    @abstractmethod
    def __call__(self, inputs: Any, targets: Any = None) -> Rows:
        """The rows of one batch; its tensors hold samples along their first dimension."""


class DenseSource(Source):
    """A source that writes its rows to a matrix, which the next call overwrites."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        reduction: Reduction | None,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        super().__init__(model, loss_fn, reduction)
        self._scaler = check_scaler(scaler)

    def _all_at_once(self, batch: Any, rows: Tensor, *, chunk: int) -> DenseRows:
        """Rows by `torch.func.vmap`, `chunk` of them at a time; the tensors of the batch are [n, b, ...]."""
        scale = loss_scale(self._scaler, rows)
        factor = self._objective.factor(len(rows)) * scale
        losses, medians = write_gradients(
            self._objective, self.layout, batch, rows, factor=factor, chunk=chunk
        )
        self._check(losses)
        for buffer, median in medians:
            buffer.copy_(median)
        return self._rows_of(rows, losses, scale)

    def _check(self, losses: Tensor) -> None:
        """At least half of the losses are finite. Under a scaler the step is skipped later, as torch does, if they are not."""
        if self._scaler is None:
            check_losses(losses)

    def _rows_of(self, rows: Tensor, losses: Tensor, scale: float) -> DenseRows:
        self.losses = losses
        return self.layout.rows(rows if scale == 1.0 else rows.mul_(1.0 / scale))


def trainable(model: nn.Module) -> Layout:
    """The layout of a model whose trainable parameters share one dtype and one device."""
    if not isinstance(model, nn.Module):
        raise failure("model", "be a torch.nn.Module", type(model).__name__)
    layout = Layout(model)
    kinds = {(str(parameter.dtype), str(parameter.device)) for parameter in layout.parameters}
    if len(kinds) > 1:
        raise failure(
            "model", "have its trainable parameters in one dtype and on one device", sorted(kinds)
        )
    return layout


def check_scaler(scaler: torch.amp.GradScaler | None) -> torch.amp.GradScaler | None:
    """The gradient scaler, or None if there is none that is switched on."""
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise failure("scaler", "be a torch.amp.GradScaler", type(scaler).__name__)
    return scaler if scaler is not None and scaler.is_enabled() else None


def loss_scale(scaler: torch.amp.GradScaler | None, like: Tensor) -> float:
    """What the scaler would multiply a loss by; 1 without a scaler."""
    return 1.0 if scaler is None else float(scaler.scale(torch.ones((), device=like.device)))


def check_same_parameters(model: nn.Module, layout: Layout) -> None:
    """The trainable parameters of the model are those of the layout."""
    now = {
        id(parameter): name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    then = dict(zip(map(id, layout.parameters), layout.names, strict=True))
    changed = [name for key, name in (now | then).items() if key not in now or key not in then]
    if changed:
        raise failure(
            "model",
            "have the trainable parameters it had when the source was made (make a new one)",
            f"another {changed[0]!r}",
        )


def write_row(layout: Layout, gradients: Sequence[Tensor | None], row: Tensor) -> None:
    """Write one gradient per parameter, None for zero, to the row [d]."""
    for piece, gradient in zip(layout.split(row), gradients, strict=True):
        if gradient is None:
            piece.zero_()
        else:
            piece.copy_(gradient.to_dense() if gradient.is_sparse else gradient)


def row_buffer(buffer: Tensor | None, n: int, layout: Layout) -> Tensor:
    """[n, d] the buffer, if it has that shape and stands where the parameters are, else a new one."""
    first = layout.parameters[0]
    if (
        buffer is not None
        and buffer.shape == (n, layout.d)
        and buffer.dtype == first.dtype
        and buffer.device == first.device
    ):
        return buffer
    with torch.inference_mode(False):  # it outlives this call
        return torch.empty(n, layout.d, dtype=first.dtype, device=first.device)
