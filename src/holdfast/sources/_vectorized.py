"""Gradients of many slices at once, by `torch.func.vmap`."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from holdfast.checks import failure
from holdfast.geometry import median_of_rows
from holdfast.layout import Layout
from holdfast.sources._batch_loss import (
    Objective,
    batch_size,
    first_line,
    map_tensors,
    picked,
    tensors_of,
)
from holdfast.sources._buffers import without_side_effects
from holdfast.sources._probe import evaluated, saved_bytes

State = dict[str, Tensor]
PREFIX = "model."

# Up to this size, of the rows and of the activations, vmap costs less than a loop over slices
# (measured on a CPU, 16 slices: 0.3 to 0.9 of the loop; 1.1 to 2.4 above it).
MAX_BYTES = 2**25


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
            with warnings.catch_warnings():
                # Raised where vmap falls back to a loop, which is no slower than one of ours.
                warnings.filterwarnings("ignore", "There is a performance drop")
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


def pays_vectorized(objective: Objective, layout: Layout, batch: Any, n_rows: int) -> bool:
    """Whether `n_rows` slices at once are expected to take less time than one after the other."""
    row_bytes = layout.d * layout.parameters[0].element_size()
    # A hook may look at values, or store them.
    hooks = any(m._forward_hooks or m._forward_pre_hooks for m in objective.model.modules())
    if n_rows == 1 or n_rows * row_bytes > MAX_BYTES or hooks:
        return False
    try:
        with evaluated(objective.model):
            one = saved_bytes(objective, batch)
    except Exception:  # a model may not take single samples
        return False
    return batch_size(batch) * one <= MAX_BYTES


def holds_vmap_tensors(model: nn.Module) -> bool:
    """Whether a module has stored a tensor of a forward pass under vmap, which is of no use now."""
    stored = (tensors_of(vars(module)) for module in model.modules())
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(is_wrapped(tensor) for tensors in stored for tensor in tensors)
