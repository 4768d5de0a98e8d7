from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.sources._batch import batch_size, detached, map_tensors, tensors_of
from holdfast.sources._graph import check_differentiable, uses
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._mixing import check_samples_apart
from holdfast.sources._objective import LossFunction, check_losses
from holdfast.sources._ownership import (
    adopters,
    calls_with_one_more,
    check_lengths,
    check_owners,
    check_reached,
    check_sum,
)
from holdfast.sources._recording import Call, recorded, refused
from holdfast.sources._source import Source, check_same_parameters, write_row
from holdfast.sources.layers import LayerGradients, Recomputed, gradients_of, is_known


@final
class LayerGrams(Source):
    r"""One row per sample of the batch, without the matrix of rows: rules in Gram space over single samples, at a few times a plain step.

    The rows are those of :class:`PerSample`, scaled like them so that their mean is the ordinary gradient. One forward pass and one backward
    pass, to the outputs of the layers only, give each layer's inputs u and output gradients :math:`\delta`. The inner products of
    the samples' gradients follow layer by layer, for a linear layer as :math:`\langle u_i, u_j \rangle \langle \delta_i, \delta_j \rangle`, and so do weighted sums of
    them, :math:`\sum_i w_i \delta_i u_i^T`. Memory: the activations and their gradients, and one small piece of one layer at a time.

    Linear, Conv1d to Conv3d, Embedding and the normalisation layers have short forms. The parameters of any other module are treated by
    running that one module again under `torch.func`. Refused by name: layers that mix samples (BatchNorm in training mode), modules called twice,
    parameters that two modules share or that are used outside their module, random modules without a short form, and modules whose
    tensors do not have the samples along the first dimension. At the first batch of every shape the sum of the rows is compared with the
    ordinary gradient, and one more forward pass with one more sample shows which tensors hold samples. A loss that compares samples with each other
    (contrastive losses) has no gradients of single samples; that is not noticed.

    Use the rows before the batch or the parameters change; they are computed from these.

    Args:
        model: any module whose layers fit the list above; its parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar, or the losses [n] of the samples (reduction="none"), which are then
            also in `losses`; their mean is then the loss. Of a scalar it is taken that it is a sum or mean of terms of single samples.

    Example:
        >>> from holdfast.aggregators import GeometricMedian
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> rows = LayerGrams(model, nn.CrossEntropyLoss())(torch.randn(9, 3), torch.zeros(9, dtype=torch.int64))
        >>> GeometricMedian().aggregate(rows).weights.shape
        torch.Size([9])
    """

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__(model, loss_fn)
        self._seen: set[tuple[Any, ...]] = set()

    def __call__(self, inputs: Any, targets: Any = None) -> LayerRows:
        check_samples_apart(self.model)
        check_same_parameters(self.model, self.layout)
        batch = detached((inputs, targets))
        n = batch_size(batch)
        shapes = (
            tuple(tensor.shape for tensor in tensors_of(batch)),
            tuple(module.training for module in self.model.modules()),
        )
        is_new = shapes not in self._seen
        with_one_more = calls_with_one_more(self._objective, batch, n) if is_new else None
        with torch.enable_grad(), recorded(self.model) as calls:
            loss = self._objective(batch)
            total = self._total(loss, n)
        for call in calls:
            call.check_unchanged()
        n_uses = uses(total)
        check_owners(self.model, calls, n_uses)
        if with_one_more is not None:
            check_lengths(calls, with_one_more, n)
        ordinary = self._ordinary(total) if is_new else None
        rows = LayerRows(self._layers(total, calls, n), n, self.layout, batch)
        check_reached(self.layout, n_uses, rows)
        if ordinary is not None and check_sum(rows, ordinary, self.layout):
            self._seen.add(shapes)
        self.losses = loss.detach().reshape(-1)
        return rows

    def _total(self, loss: Tensor, n: int) -> Tensor:
        """The scalar whose gradients with respect to one sample's values are that sample's row."""
        check_differentiable(loss)
        if loss.numel() == 1:
            return loss.reshape(()) * n
        if loss.shape != (n,):
            raise failure(
                "loss_fn",
                f"return a scalar or the losses of the samples [{n}]",
                f"shape {tuple(loss.shape)}",
            )
        check_losses(loss.detach())
        return loss.sum()

    def _ordinary(self, total: Tensor) -> Tensor:
        """[d] the gradient of the total, the ordinary way."""
        out = torch.empty(self.layout.d, dtype=self.layout.parameters[0].dtype, device=total.device)
        with torch.autocast(total.device.type, enabled=False):
            gradients = torch.autograd.grad(
                total, self.layout.parameters, retain_graph=True, allow_unused=True
            )
        write_row(self.layout, gradients, out)
        return out

    def _layers(self, total: Tensor, calls: Sequence[Call], n: int) -> list[LayerGradients]:
        edges = [edge for call in calls for edge in call.edges if edge is not None]
        with torch.autocast(total.device.type, enabled=False):
            found = iter(torch.autograd.grad(total, edges, allow_unused=True) if edges else ())
        arrived = [[None if edge is None else next(found) for edge in call.edges] for call in calls]
        adopted = adopters(self.model, calls)
        dtype = self.layout.parameters[0].dtype
        layers: list[LayerGradients] = []
        for call, gradients in zip(calls, arrived, strict=True):
            reached = {
                place: gradient.to(dtype)
                for place, gradient in enumerate(gradients)
                if gradient is not None
            }
            if reached:
                layers += _of_call(call, reached, n, adopted)
        return layers


def _of_call(
    call: Call, gradients: dict[int, Tensor], n: int, adopted: dict[int, nn.Module]
) -> list[LayerGradients]:
    """The gradients of the parameters that one call is responsible for; `gradients` are those of its outputs, by their places."""
    if any(len(tensor) != n for tensor in (*tensors_of(call.arguments), *gradients.values())):
        raise refused(call.name, call.module, "does not have the samples along the first dimension")
    dtype = gradients[min(gradients)].dtype
    arguments = map_tensors(
        lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, call.arguments
    )
    if is_known(call.module):
        return gradients_of(call.module, next(tensors_of(arguments)), gradients[0])
    if getattr(call.module, "scale_grad_by_freq", False):
        raise refused(call.name, call.module, "scales gradients by frequencies over the batch")
    if call.drew:
        raise refused(
            call.name, call.module, "draws random numbers that running it again would not repeat"
        )
    own = {id(parameter) for parameter in call.module._parameters.values()}
    named = {
        name: parameter
        for name, parameter in call.module.named_parameters()
        if parameter.requires_grad
        and parameter.numel()
        and (id(parameter) in own or adopted.get(id(parameter)) is call.module)
    }
    outputs = tuple(gradients)
    return [
        Recomputed(
            call.module,
            tuple(named),
            tuple(named.values()),
            arguments,
            tuple(gradients.values()),
            outputs,
            dtype,
        )
    ]
