from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import failure
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
from holdfast.sources._buffers import without_side_effects
from holdfast.sources._layer_checks import (
    blamed,
    check_copies,
    check_reached,
    check_sum,
    check_uses,
    shapes_with_one_more,
)
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._module_calls import (
    NO_DIMENSION,
    Call,
    ShapesOfCalls,
    owners,
    recorded_calls,
    refused,
    repeated,
)
from holdfast.sources._random_state import random_state, set_random_state
from holdfast.sources._source import (
    Source,
    TermsFunction,
    check_same_parameters,
    write_row,
)
from holdfast.sources.layers import (
    LayerGradients,
    Recomputed,
    Shared,
    gradients_of,
    is_known,
    keeps_samples_apart,
    weighted,
)


@final
class LayerGrams(Source):
    r"""One row per sample of the batch, without the matrix of rows, for rules in Gram space.

    The rows are those of :class:`PerSample`, at the cost of a few plain steps. One forward and one
    backward pass, to the outputs of the layers only, give the inputs u and output gradients
    :math:`\delta` of each layer. Inner products of the samples' gradients follow layer by layer,
    for a linear layer as :math:`\langle u_i, u_j \rangle \langle \delta_i, \delta_j \rangle`, and
    so do weighted sums, :math:`\sum_i w_i \delta_i u_i^T`. Memory: the activations, their
    gradients, and one small piece of one layer at a time.

    Linear, Conv1d to Conv3d, Embedding and the normalization layers have closed forms; any other
    module is run again under `torch.func`, with the same dropout noise. Samples may be along any
    one dimension of a layer's tensors (sequences first). Layers may be called several times and
    share parameters (tied embeddings), at the cost of the samples' gradients of these parameters, a
    few rows at a time. Tensors that do not depend on the samples (embeddings of positions) are
    repeated for each sample.

    Not supported (an error names the layer): layers that mix samples (BatchNorm in training mode),
    parameters that are used outside their module, random numbers other than dropout in modules
    without a closed form, and tensors in which samples and positions share a dimension. At the
    first batch of every shape, the sum of the rows is compared with the ordinary gradient, and a
    second forward pass with one more sample shows which dimensions hold samples. A loss that
    compares samples with each other (contrastive losses) has no per-sample gradients; this is not
    detected.

    Use the rows before the batch or the parameters change: they are computed from these.

    Args:
        model: a module with layers as above; its parameters share one dtype and one device.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar, which must be a sum
            or mean over samples, or the losses [n] of the samples (reduction="none"), whose mean
            is then the loss.
        terms: a function of inputs and targets that returns the numbers of terms [n] which the
            loss averages in the samples, such as tokens without padding. Row i is then the gradient
            of the mean over the terms of sample i, and `row_weights` are set; without it, samples
            with more terms have longer rows, and the rows count equally.

    Example:
        >>> from holdfast.aggregators import GeometricMedian
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> source = LayerGrams(model, nn.CrossEntropyLoss())
        >>> rows = source(torch.randn(9, 3), torch.zeros(9, dtype=torch.int64))
        >>> GeometricMedian().aggregate(rows).weights.shape
        torch.Size([9])
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, *, terms: TermsFunction | None = None
    ) -> None:
        super().__init__(model, loss_fn, terms=terms)
        self._seen: dict[Any, ShapesOfCalls] = {}  # by the shapes of the batch and the modes

    def __call__(self, inputs: Any, targets: Any = None) -> LayerRows:
        check_independent_samples(self.model)
        check_same_parameters(self.model, self.layout)
        batch = detached((inputs, targets))
        n = batch_size(batch)
        counts = self._count_terms(batch, n)
        shapes = tuple(tensor.shape for tensor in tensors_of(batch))
        key = shapes, tuple(module.training for module in self.model.modules())
        is_new = key not in self._seen
        one_more = shapes_with_one_more(self._objective, batch, n) if is_new else self._seen[key]
        device = self.layout.parameters[0].device
        state = random_state(device) if is_new else None
        with torch.enable_grad(), recorded_calls(self.model, n, one_more) as recorded:
            try:
                losses, loss = self._loss(batch, n, counts)
            except RuntimeError as error:
                raise blamed(error, recorded.calls) from error
        calls = recorded.calls
        for call in calls:
            call.check_unchanged()
        n_uses = count_uses(loss)
        check_uses(calls, n_uses)
        if state is not None and any(call.is_repeated for call in calls):
            with without_side_effects(self.model), torch.no_grad():
                set_random_state(device, state)
                with recorded_calls(self.model, n, one_more, nudged=True) as nudged:
                    self._objective(batch)
            check_copies(recorded, nudged, n)
        # The ordinary gradient first: it retains the graph, which the pass to the layers frees.
        ordinary = None if state is None else self._ordinary(batch, loss, calls, counts, state)
        weights = torch.full((n,), 1 / n, dtype=torch.float64)
        if counts is not None:
            weights = counts / counts.sum()
        rows = LayerRows(self._layers(loss, calls, weights), n, self.layout, batch)
        check_reached(self.layout, n_uses, rows)
        if ordinary is not None and check_sum(rows, weights, ordinary, self.layout):
            self._seen[key] = one_more
        self._finish(losses, n, n, counts)
        return rows

    def _loss(self, batch: Any, n: int, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the loss function returns, and the loss of the whole batch."""
        loss = self._objective(batch)
        if loss.numel() == 1:
            total = loss.reshape(())
        elif loss.shape != (n,):
            requirement = f"return a scalar or the losses of the samples [{n}]"
            raise failure("loss_fn", requirement, f"shape {tuple(loss.shape)}")
        elif counts is None:
            check_losses(loss.detach())
            total = loss.mean()
        else:
            used = (counts > 0).to(loss.device)
            check_losses(loss.detach()[used])
            total = loss[used] @ (counts / counts.sum()).to(loss)[used]
        check_differentiable(total)
        return loss.detach().reshape(-1), total

    def _ordinary(
        self,
        batch: Any,
        loss: Tensor,
        calls: Sequence[Call],
        counts: Tensor | None,
        state: Tensor,
    ) -> Tensor:
        """[d] the gradient of the loss by autograd."""
        parameters = self.layout.parameters
        out = torch.empty(self.layout.d, dtype=parameters[0].dtype, device=loss.device)
        n = batch_size(batch)
        if any(call.is_repeated for call in calls):
            # Outputs were repeated for each sample: does the model use them as it would otherwise?
            # An ordinary pass with the same random numbers shows it.
            with without_side_effects(self.model):
                set_random_state(parameters[0].device, state)
                loss = self._loss(batch, n, counts)[1]
        with torch.autocast(loss.device.type, enabled=False):
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        write_row(self.layout, gradients, out)
        return out

    def _layers(self, loss: Tensor, calls: Sequence[Call], weights: Tensor) -> list[LayerGradients]:
        """The rows: gradients of the loss through each sample, divided by the sample's weight."""
        edges = [edge for call in calls for edge in call.edges if edge is not None]
        with torch.autocast(loss.device.type, enabled=False):
            total = loss * len(weights)
            found = iter(torch.autograd.grad(total, edges, allow_unused=True) if edges else ())
        owned = owners(calls)
        dtype = self.layout.parameters[0].dtype
        factors = (weights * len(weights)).where(weights > 0, torch.inf).reciprocal()
        is_equal = self._terms is None  # no pass over all gradients to multiply them by one
        uses: dict[tuple[int, ...], list[LayerGradients]] = {}
        for call in calls:
            gradients = [None if edge is None else next(found) for edge in call.edges]
            reached: dict[int, Tensor] = {}
            for i, gradient in enumerate(gradients):
                if gradient is not None:
                    dimension = 0 if call.is_repeated else call.dimensions[2][i]
                    if dimension is None:
                        raise refused(call.name, call.module, NO_DIMENSION)
                    moved = gradient.to(dtype).movedim(dimension, 0)
                    reached[i] = moved if is_equal else weighted(moved, factors)
            for layer in _layers_of_call(call, reached, len(weights), owned) if reached else ():
                uses.setdefault(tuple(map(id, layer.parameters)), []).append(layer)
        return [each[0] if len(each) == 1 else Shared(tuple(each)) for each in uses.values()]


def _layers_of_call(
    call: Call, gradients: dict[int, Tensor], n: int, owned: dict[int, nn.Module]
) -> list[LayerGradients]:
    """Gradients of the parameters that a call owns, from those [n, ...] of its outputs."""
    module = call.module
    dtype = gradients[min(gradients)].dtype
    arguments = map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, call.arguments)
    if is_known(module):
        inputs, dimension = next(tensors_of(arguments)), call.dimensions[0][0]
        if dimension is None:
            return gradients_of(module, repeated(inputs, n), gradients[0])
        if not keeps_samples_apart(module, inputs.ndim, dimension):
            raise refused(call.name, module, NO_DIMENSION)
        return gradients_of(module, inputs.movedim(dimension, 0), gradients[0])
    if getattr(module, "scale_grad_by_freq", False):
        raise refused(call.name, module, "scales gradients by frequencies over the batch")
    if call.is_random:
        raise refused(call.name, module, "draws random numbers, which a rerun would not repeat")
    if not call.is_repeated and all(d is None for d in call.dimensions[0]):
        raise refused(call.name, module, NO_DIMENSION)
    named = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.numel() and owned.get(id(parameter)) is module
    }
    if not named:
        return []
    given, noise, outputs = call.dimensions
    return [
        Recomputed(
            module,
            tuple(named),
            tuple(named.values()),
            arguments,
            call.noise,
            (*given, *noise),
            tuple(gradients.values()),
            tuple(gradients),
            tuple(outputs[place] for place in gradients),
            dtype,
        )
    ]
