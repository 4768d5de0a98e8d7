from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.layout import Layout
from holdfast.sources._batch_loss import (
    LossFunction,
    batch_size,
    check_differentiable,
    check_independent_samples,
    check_losses,
    count_uses,
    detached,
    map_tensors,
    tensors_of,
)
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._module_calls import (
    NOT_FIRST,
    Call,
    adopters,
    calls_with_one_more,
    check_lengths,
    check_owners,
    recorded_calls,
    refused,
)
from holdfast.sources._source import Source, check_same_parameters, write_row
from holdfast.sources.layers import LayerGradients, Recomputed, gradients_of, is_known


@final
class LayerGrams(Source):
    r"""One row per sample of the batch, without the matrix of rows, for rules in Gram space.

    The rows are those of :class:`PerSample`, at the cost of a few plain steps. One forward and one
    backward pass, to the outputs of the layers only, give the inputs u and output gradients
    :math:`\delta` of each layer. Inner products of the samples' gradients follow layer by layer,
    for a linear layer as :math:`\langle u_i, u_j \rangle \langle \delta_i, \delta_j \rangle`, and
    so do weighted sums, :math:`\sum_i w_i \delta_i u_i^T`. Memory: the activations, their
    gradients, and one small piece of one layer at a time.

    Linear, Conv1d to Conv3d, Embedding and the normalization layers have short forms; any other
    module is run again under `torch.func`. Refused by name: layers that mix samples (BatchNorm in
    training mode), modules called twice, parameters that two modules share or that are used outside
    their module, random modules without a short form, and modules whose tensors do not have the
    samples along the first dimension. At the first batch of every shape, the sum of the rows is
    compared with the ordinary gradient, and a second forward pass with one more sample shows which
    tensors hold samples. A loss that compares samples with each other (contrastive losses) has no
    per-sample gradients; this is not detected.

    Use the rows before the batch or the parameters change: they are computed from these.

    Args:
        model: a module with layers as above; its parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar, which must be a sum
            or mean over samples, or the losses [n] of the samples (reduction="none"), whose mean
            is then the loss.

    Example:
        >>> from holdfast.aggregators import GeometricMedian
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> source = LayerGrams(model, nn.CrossEntropyLoss())
        >>> rows = source(torch.randn(9, 3), torch.zeros(9, dtype=torch.int64))
        >>> GeometricMedian().aggregate(rows).weights.shape
        torch.Size([9])
    """

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__(model, loss_fn)
        self._seen: set[tuple[Any, ...]] = set()

    def __call__(self, inputs: Any, targets: Any = None) -> LayerRows:
        check_independent_samples(self.model)
        check_same_parameters(self.model, self.layout)
        batch = detached((inputs, targets))
        n = batch_size(batch)
        shapes = tuple(tensor.shape for tensor in tensors_of(batch))
        modes = tuple(module.training for module in self.model.modules())
        is_new = (shapes, modes) not in self._seen
        with_one_more = calls_with_one_more(self._objective, batch, n) if is_new else None
        with torch.enable_grad(), recorded_calls(self.model) as calls:
            loss = self._objective(batch)
            total = self._total(loss, n)
        for call in calls:
            call.check_unchanged()
        n_uses = count_uses(total)
        check_owners(self.model, calls, n_uses)
        if with_one_more is not None:
            check_lengths(calls, with_one_more, n)
        # The ordinary gradient first: it retains the graph, which the pass to the layers frees.
        ordinary = self._ordinary(total) if is_new else None
        rows = LayerRows(self._layers(total, calls, n), n, self.layout, batch)
        _check_reached(self.layout, n_uses, rows)
        if ordinary is not None and _check_sum(rows, ordinary, self.layout):
            self._seen.add((shapes, modes))
        self.losses = loss.detach().reshape(-1)
        return rows

    def _total(self, loss: Tensor, n: int) -> Tensor:
        """The scalar whose gradient with respect to the values of sample i gives row i."""
        check_differentiable(loss)
        if loss.numel() == 1:
            return loss.reshape(()) * n
        if loss.shape != (n,):
            requirement = f"return a scalar or the losses of the samples [{n}]"
            raise failure("loss_fn", requirement, f"shape {tuple(loss.shape)}")
        check_losses(loss.detach())
        return loss.sum()

    def _ordinary(self, total: Tensor) -> Tensor:
        """[d] the gradient of the total by autograd."""
        parameters = self.layout.parameters
        out = torch.empty(self.layout.d, dtype=parameters[0].dtype, device=total.device)
        with torch.autocast(total.device.type, enabled=False):
            gradients = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
        write_row(self.layout, gradients, out)
        return out

    def _layers(self, total: Tensor, calls: Sequence[Call], n: int) -> list[LayerGradients]:
        edges = [edge for call in calls for edge in call.edges if edge is not None]
        with torch.autocast(total.device.type, enabled=False):
            found = iter(torch.autograd.grad(total, edges, allow_unused=True) if edges else ())
        adopted = adopters(self.model, calls)
        dtype = self.layout.parameters[0].dtype
        layers: list[LayerGradients] = []
        for call in calls:
            gradients = [None if edge is None else next(found) for edge in call.edges]
            reached = {i: g.to(dtype) for i, g in enumerate(gradients) if g is not None}
            if reached:
                layers += _layers_of_call(call, reached, n, adopted)
        return layers


def _layers_of_call(
    call: Call, gradients: dict[int, Tensor], n: int, adopted: dict[int, nn.Module]
) -> list[LayerGradients]:
    """Gradients of the parameters that a call owns, from those of its outputs, by their places."""
    module = call.module
    if any(len(tensor) != n for tensor in (*tensors_of(call.arguments), *gradients.values())):
        raise refused(call.name, module, NOT_FIRST)
    dtype = gradients[min(gradients)].dtype
    arguments = map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, call.arguments)
    if is_known(module):
        return gradients_of(module, next(tensors_of(arguments)), gradients[0])
    if getattr(module, "scale_grad_by_freq", False):
        raise refused(call.name, module, "scales gradients by frequencies over the batch")
    if call.is_random:
        raise refused(call.name, module, "draws random numbers, which a rerun would not repeat")
    own = {id(parameter) for parameter in module._parameters.values()}
    own |= {parameter for parameter, adopter in adopted.items() if adopter is module}
    named = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.numel() and id(parameter) in own
    }
    names, parameters = tuple(named), tuple(named.values())
    outputs, arrived = tuple(gradients), tuple(gradients.values())
    return [Recomputed(module, names, parameters, arguments, arrived, outputs, dtype)]


def _check_reached(layout: Layout, n_uses: Counter[int], rows: LayerRows) -> None:
    """Check that the rows hold gradients of every parameter that the loss depends on."""
    for name, parameter in zip(layout.names, layout.parameters, strict=True):
        if n_uses[id(parameter)] and parameter.numel() and not rows.reaches(parameter):
            requirement = "use parameters in modules that take and return tensors with samples"
            raise failure("model", requirement, f"{name!r}, used elsewhere")


def _check_sum(rows: LayerRows, ordinary: Tensor, layout: Layout) -> bool:
    """Check that rows and inner products add up to the ordinary gradient.

    Returns False if a sample is not finite, so that the sums cannot be compared.
    """
    n, found = rows.n, rows.combine(torch.ones(rows.n))
    products = rows.products(ordinary[None])
    scale = float(products.diagonal()[:n].clamp(min=0).sqrt().sum())
    if not scale < float("inf") or not bool(torch.isfinite(ordinary).all()):
        return False
    is_coarse = torch.is_autocast_enabled(found.device.type) or found.dtype.itemsize < 4
    tolerance = 0.05 if is_coarse else 1e-3
    errors = [float(torch.linalg.vector_norm(piece)) for piece in layout.split(found - ordinary)]
    worst = max(range(len(errors)), key=lambda i: errors[i])
    if errors[worst] > tolerance * scale:
        requirement = "have per-sample gradients that add up to its gradient (or use PerSample)"
        raise failure("model", requirement, f"{layout.names[worst]!r}, where they do not")
    # <g_i, sum of all g_j> two ways: catches inner products that are wrong while the sum is right.
    if float((products[:n, :n].sum(1) - products[:n, n]).abs().max()) > tolerance * scale**2:
        requirement = "have layers that compute each sample independently of the others"
        raise failure("model", requirement, "one that does not")
    return True
