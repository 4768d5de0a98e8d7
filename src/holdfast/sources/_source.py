"""Sources of rows from a model and a loss, and gradients of many rows at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from holdfast.checks import failure
from holdfast.geometry import DenseRows, Rows
from holdfast.layout import Layout
from holdfast.sources._batch_loss import (
    LossFunction,
    Objective,
    Reduction,
    check_losses,
    first_line,
    map_tensors,
    picked,
    tensors_of,
)
from holdfast.sources._buffers import median_of_rows, without_side_effects

State = dict[str, Tensor]
PREFIX = "model."


class Source(ABC):
    """Turns a batch into rows of gradients, which carry the layout of the model's parameters.

    Parameters without `requires_grad` have no columns; a shared parameter has its columns once. The
    set of trainable parameters must not change later. `.grad`, the mode of the model and its
    parameters are not changed.

    Attributes:
        layout: the columns of each parameter.
        losses: [n] the losses of the rows of the last call; empty before the first call.
            (`LayerGrams` with a scalar loss: that loss.)
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
        """The rows of one batch; its tensors hold samples along the first dimension."""


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
        """Rows by `torch.func.vmap`, `chunk` at a time; tensors of the batch are [n, b, ...]."""
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
        # With a scaler a step whose losses overflow is skipped later, as in any torch loop.
        if self._scaler is None:
            check_losses(losses)

    def _rows_of(self, rows: Tensor, losses: Tensor, scale: float) -> DenseRows:
        self.losses = losses
        return self.layout.rows(rows if scale == 1.0 else rows.mul_(1.0 / scale))


class _Loss(nn.Module):
    """The objective as a module: `functional_call` then also serves losses that read parameters."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.model = objective.model
        self._objective = objective

    def forward(self, batch: Any) -> tuple[Tensor, State]:
        """The loss, and the buffers after the forward pass."""
        loss = self._objective.total(batch)
        return loss, self.state()

    def state(self) -> State:
        """All buffers except flags."""
        return {name: buffer for name, buffer in self.named_buffers() if buffer.dtype != torch.bool}


def write_gradients(
    objective: Objective, layout: Layout, batch: Any, out: Tensor, *, factor: float, chunk: int
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Write the gradients of `factor` times the losses of the slices to `out` [n, d].

    The tensors of the batch are [n, b, ...]; `chunk` slices are computed at a time. Every slice has
    its own noise (dropout) and its own buffers. Returns the losses [n], and the buffers that
    changed with their medians over the slices.
    """
    whole = _Loss(objective)
    named = zip(layout.names, layout.parameters, strict=True)
    parameters = {PREFIX + name: parameter.detach() for name, parameter in named}
    buffers = whole.state()

    def loss(parameters: State, own: State, tensors: list[Tensor]) -> tuple[Tensor, Any]:
        pieces = iter(tensors)
        part = map_tensors(lambda _: next(pieces), batch)
        found, left = functional_call(whole, (parameters, own), (part,))
        return found * factor, (found.detach(), left)

    differentiate = grad_and_value(loss, has_aux=True)
    gradients_of = vmap(differentiate, in_dims=(None, 0, 0), randomness="different")
    losses, ends = [], []
    for at in range(0, len(out), chunk):
        rows = out[at : at + chunk]
        # Clones, because forward passes write to buffers in place.
        own = {name: b.expand(len(rows), *b.shape).clone() for name, b in buffers.items()}
        try:
            tensors = [tensor[at : at + chunk] for tensor in tensors_of(batch)]
            gradients, (_, (found, left)) = gradients_of(parameters, own, tensors)
        except RuntimeError as error:
            # If the model fails on a single slice without vmap, that error is the one to show.
            with without_side_effects(objective.model):
                objective.total(picked(batch, at))
            requirement = "work under torch.func.vmap (or use MicroBatches with vectorized=False)"
            raise failure("model", requirement, first_line(error)) from error
        pieces = torch.split(rows, list(layout.sizes), dim=1)
        for columns, name in zip(pieces, layout.names, strict=True):
            columns.copy_(gradients[PREFIX + name].reshape(columns.shape))
        losses.append(found)
        ends.append(left)
    medians = []
    for name, buffer in buffers.items():
        # The model may have replaced a buffer by one that broadcasts to its shape.
        pairs = zip(ends, losses, strict=True)
        values = torch.cat([left[name].expand(len(f), *buffer.shape) for left, f in pairs])
        if not torch.equal(values, buffer.expand_as(values)):
            medians.append((buffer, median_of_rows(values, buffer)))
    return torch.cat(losses), medians


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
