"""Gradients of many slices of a batch at once, by `torch.func.vmap`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from holdfast.checks import failure
from holdfast.layout import Layout
from holdfast.sources._batch import first_line, map_tensors, picked, tensors_of
from holdfast.sources._buffers import median_of_rows
from holdfast.sources._objective import Objective
from holdfast.sources._rehearsal import rehearsal

State = dict[str, Tensor]
PREFIX = "model."


class _Loss(nn.Module):
    """The objective as a module, so that a loss that looks at the model's parameters sees those it is differentiated by."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.model = objective.model
        self._objective = (objective,)  # in a tuple, so that it is no submodule

    def forward(self, batch: Any) -> tuple[Tensor, State]:
        """The loss, and what the forward pass left in the buffers."""
        loss = self._objective[0].total(batch)
        return loss, buffers_of(self)


def buffers_of(model: nn.Module) -> State:
    """The buffers that are not flags, by name."""
    return {name: buffer for name, buffer in model.named_buffers() if buffer.dtype != torch.bool}


def write_gradients(
    objective: Objective, layout: Layout, batch: Any, out: Tensor, *, factor: float, chunk: int
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Write the gradients of `factor` times the losses of the slices to `out` [n, d].

    The tensors of the batch are [n, b, ...]; `chunk` slices are treated at a time. Every slice has its own noise (dropout) and its own
    buffers. Returned are the losses [n], and the buffers that were changed with their medians over the slices.
    """
    whole = _Loss(objective)
    parameters = {
        PREFIX + name: p.detach() for name, p in zip(layout.names, layout.parameters, strict=True)
    }
    buffers = buffers_of(whole)

    def loss(
        parameters: State, own: State, tensors: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, State]]:
        pieces = iter(tensors)
        part = map_tensors(lambda _: next(pieces), batch)
        found, left = functional_call(whole, (parameters, own), (part,))
        return found * factor, (found.detach(), left)

    gradients_of = vmap(
        grad_and_value(loss, has_aux=True), in_dims=(None, 0, 0), randomness="different"
    )
    losses, ends = [], []
    for at in range(0, len(out), chunk):
        rows = out[at : at + chunk]
        own = {
            name: buffer.expand(len(rows), *buffer.shape).clone()
            for name, buffer in buffers.items()
        }
        try:
            tensors = [tensor[at : at + chunk] for tensor in tensors_of(batch)]
            gradients, (_, (found, left)) = gradients_of(parameters, own, tensors)
        except RuntimeError as error:
            with rehearsal(objective.model):
                objective.total(
                    picked(batch, at)
                )  # raises what the model itself has to say against the batch, if anything
            wanted = "work under torch.func.vmap (MicroBatches without `vectorized` asks less)"
            raise failure("model", wanted, first_line(error)) from error
        for columns, name in zip(
            torch.split(rows, list(layout.sizes), dim=1), layout.names, strict=True
        ):
            columns.copy_(gradients[PREFIX + name].reshape(columns.shape))
        losses.append(found)
        ends.append(left)
    medians = []
    for name, buffer in buffers.items():
        values = torch.cat(
            [
                left[name].expand(len(found), *buffer.shape)
                for left, found in zip(ends, losses, strict=True)
            ]
        )
        if not torch.equal(values, buffer.expand_as(values)):
            medians.append((buffer, median_of_rows(values, buffer)))
    return torch.cat(losses), medians
