from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from holdfast._checks import failure
from holdfast.sources._batch import batch_size, map_tensors, tensors_of
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._mixing import check_samples_apart
from holdfast.sources._objective import LossFunction, Reduction, check_losses
from holdfast.sources._recording import Call, recorded, refused, uses
from holdfast.sources._source import Source
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
    tensors do not have the samples along the first dimension.

    Args:
        model: any module whose layers fit the list above; its parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar, or the losses [n] of the samples (reduction="none"), which are then
            also in `losses`. Of a scalar it is taken that it is a sum or mean of terms of single samples.
        reduction: "mean" or "sum", what a scalar loss does over samples; by default what `loss_fn.reduction` says, else "mean".

    Example:
        >>> from holdfast.aggregators import GeometricMedian
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> rows = LayerGrams(model, nn.CrossEntropyLoss())(torch.randn(9, 3), torch.zeros(9, dtype=torch.int64))
        >>> GeometricMedian().aggregate(rows).weights.shape
        torch.Size([9])
    """

    def __init__(self, model: nn.Module, loss_fn: LossFunction, *, reduction: Reduction | None = None) -> None:
        super().__init__(model, loss_fn, reduction)

    def __call__(self, inputs: Any, targets: Any = None) -> LayerRows:
        check_samples_apart(self.model)
        n = batch_size((inputs, targets))
        with torch.enable_grad(), recorded(self.model) as calls:
            loss = self._objective((inputs, targets))
            total = self._total(loss, n)
        adopted = self._adopted(calls, total)
        layers: list[LayerGradients] = []
        for call, gradients in zip(calls, self._arrived(total, calls), strict=True):
            layers += _of_call(call, gradients, n, adopted)
        self.losses = loss.detach().reshape(-1)
        return LayerRows(layers, n, self.layout)

    def _total(self, loss: Tensor, n: int) -> Tensor:
        """The scalar whose gradients with respect to one sample's values are that sample's row."""
        if not loss.requires_grad:
            raise failure("loss_fn", "depend on the model's trainable parameters", "a loss without a graph")
        if loss.numel() == 1:
            return loss.reshape(()) * n
        if loss.shape != (n,):
            raise failure("loss_fn", f"return a scalar or the losses of the samples [{n}]", f"shape {tuple(loss.shape)}")
        check_losses(loss.detach())
        return loss.sum()

    def _arrived(self, total: Tensor, calls: Sequence[Call]) -> list[list[Tensor | None]]:
        """Gradients of the total with respect to the outputs of every call; None where an output had no influence."""
        edges = [edge for call in calls for edge in call.edges if edge is not None]
        with torch.autocast(total.device.type, enabled=False):
            found = iter(torch.autograd.grad(total, edges, allow_unused=True) if edges else ())
        return [[None if edge is None else next(found) for edge in call.edges] for call in calls]

    def _adopted(self, calls: Sequence[Call], total: Tensor) -> dict[int, nn.Module]:
        """Parameters (by id) whose own module was never called, with the module whose call used them; all others must be used once."""
        n_calls = Counter(id(call.module) for call in calls)
        owners: dict[int, tuple[str, str, nn.Module]] = {}
        for name, module in self.model.named_modules():
            if n_calls[id(module)] > 1:
                raise refused(name, module, "is called more than once")
            for own, parameter in module._parameters.items():
                if parameter is not None and parameter.requires_grad:
                    if id(parameter) in owners:
                        raise refused(name, module, f"shares its {own} with {owners[id(parameter)][0]!r}")
                    owners[id(parameter)] = name, own, module
        n_uses = uses(total)
        for parameter_id, (name, own, module) in owners.items():
            if n_calls[id(module)] and is_known(module) and n_uses[parameter_id] > 1:
                raise refused(name, module, f"has a {own} that is used outside it, too")
        orphans = {key: f"{name}.{own}".lstrip(".") for key, (name, own, module) in owners.items() if not n_calls[id(module)]}
        adopted: dict[int, nn.Module] = {}
        for call in sorted(calls, key=lambda call: call.name.count(".") + bool(call.name)):  # the innermost module comes last
            if not is_known(call.module):
                adopted |= {id(parameter): call.module for parameter in call.module.parameters() if id(parameter) in orphans}
        for parameter_id, name in orphans.items():
            if n_uses[parameter_id] and parameter_id not in adopted:
                raise failure("model", "use parameters in the modules that own them", f"{name!r}, used elsewhere")
        return adopted


def _of_call(call: Call, gradients: Sequence[Tensor | None], n: int, adopted: dict[int, nn.Module]) -> list[LayerGradients]:
    """The gradients of the parameters that one call is responsible for."""
    arrived = {place: gradient for place, gradient in enumerate(gradients) if gradient is not None}
    if not arrived:
        return []
    call.check_unchanged()
    if any(len(tensor) != n for tensor in (*tensors_of(call.arguments), *arrived.values())):
        raise refused(call.name, call.module, "does not have the samples along the first dimension")
    dtype = next(iter(call.module.parameters())).dtype
    arguments = map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, call.arguments)
    arrived = {place: gradient.to(dtype) for place, gradient in arrived.items()}
    if is_known(call.module):
        return gradients_of(call.module, next(tensors_of(arguments)), arrived[0])
    if _is_random(call.module):
        raise refused(call.name, call.module, "draws random numbers that running it again would not repeat")
    own = {id(parameter) for parameter in call.module._parameters.values()}
    named = {
        name: parameter
        for name, parameter in call.module.named_parameters()
        if parameter.requires_grad and (id(parameter) in own or adopted.get(id(parameter)) is call.module)
    }
    return [
        Recomputed(call.module, tuple(named), tuple(named.values()), arguments, tuple(arrived.values()), tuple(arrived), dtype)
    ]


def _is_random(module: nn.Module) -> bool:
    """Whether the module has dropout that is switched on."""
    return any(
        inner.training and (inner.p if isinstance(inner, _DropoutNd) else getattr(inner, "dropout", 0.0)) not in (0, None)
        for inner in module.modules()
        if not isinstance(getattr(inner, "dropout", 0.0), nn.Module)
    )
