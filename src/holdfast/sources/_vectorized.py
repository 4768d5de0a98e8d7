"""Gradients of many slices of a batch at once, by `torch.func.vmap`."""

from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from holdfast._checks import failure
from holdfast.layout import Layout
from holdfast.sources._batch import map_tensors, tensors_of
from holdfast.sources._buffers import median_of_rows
from holdfast.sources._objective import Objective

State = dict[str, Tensor]


def write_gradients(
    objective: Objective, layout: Layout, batch: Any, out: Tensor, *, factor: float, chunk: int
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Write the gradients of `factor` times the losses of the slices to `out` [n, d].

    The tensors of the batch are [n, b, ...]; `chunk` slices are treated at a time. Every slice has its own noise (dropout) and its own
    buffers. Returned are the losses [n], and the buffers that were changed with their medians over the slices.
    """
    parameters = {name: p.detach() for name, p in zip(layout.names, layout.parameters, strict=True)}
    buffers = {name: buffer for name, buffer in objective.model.named_buffers() if buffer.dtype != torch.bool}

    def loss(parameters: State, own: State, tensors: list[Tensor]) -> tuple[Tensor, tuple[Tensor, State]]:
        pieces = iter(tensors)
        found = objective.total(map_tensors(lambda _: next(pieces), batch), (parameters, own))
        return found * factor, (found.detach(), own)

    gradients_of = vmap(grad_and_value(loss, has_aux=True), in_dims=(None, 0, 0), randomness="different")
    losses, ends = [], []
    for at in range(0, len(out), chunk):
        rows = out[at : at + chunk]
        own = {name: buffer.expand(len(rows), *buffer.shape).clone() for name, buffer in buffers.items()}
        try:
            gradients, (_, (found, changed)) = gradients_of(
                parameters, own, [tensor[at : at + chunk] for tensor in tensors_of(batch)]
            )
        except RuntimeError as error:
            if "vmap" not in str(error) and "atching rule" not in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise failure("model", "work under torch.func.vmap (MicroBatches without `vectorized` asks less)", reason) from error
        for columns, name in zip(torch.split(rows, list(layout.sizes), dim=1), layout.names, strict=True):
            columns.copy_(gradients[name].reshape(columns.shape))
        losses.append(found)
        ends.append(changed)
    medians = []
    for name, buffer in buffers.items():
        values = torch.cat([changed[name] for changed in ends])
        if not torch.equal(values, buffer.expand_as(values)):
            medians.append((buffer, median_of_rows(values, buffer)))
    return torch.cat(losses), medians
