import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from holdfast.geometry import products_between
from holdfast.sources._batch_loss import map_tensors, tensors_of
from holdfast.sources.layers._layer_gradients import LayerGradients, largest, squares, weighted
from holdfast.sources.layers._noise import RepeatedNoise

Dimensions = tuple[int | None, ...]
"""The dimension of each tensor along which it holds samples; None if it is the same for all."""


@final
@dataclass(frozen=True, eq=False)
class Recomputed(LayerGradients):
    """The parameters of any module, by running it again.

    The samples' gradients of this one module are formed, used and dropped.

    Attributes:
        module: the module.
        names: names of the parameters in the module.
        arguments: positional arguments and keywords of the call.
        noise: factors of the dropout in the call.
        dimensions: those of the samples in the tensors of the arguments and of the noise.
        gradients: [n, ...] with respect to those outputs that influence the losses.
        outputs: the places of these among all tensors that the module returned.
        output_dimensions: those of the samples in the outputs.
        dtype: the dtype of the computation.
    """

    module: nn.Module
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    noise: tuple[Tensor, ...]
    dimensions: Dimensions
    gradients: tuple[Tensor, ...]
    outputs: tuple[int, ...]
    output_dimensions: Dimensions
    dtype: torch.dtype

    def products(self) -> Tensor:
        rows = self._rows()
        zero = torch.zeros((), dtype=torch.float64, device=rows[0].device)
        return sum((products_between(flat, flat) for flat in rows), start=zero)

    def squared_norms(self) -> Tensor:
        return torch.stack([squares(rows) for rows in self._rows()]).sum(0)

    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        pairs = zip(self._rows(), vectors, strict=True)
        found = [(flat @ vector.to(flat).flatten()).double() for flat, vector in pairs]
        return torch.stack(found).sum(0)

    def combine(self, weights: Tensor) -> list[Tensor]:
        scaled = [weighted(gradient, weights) for gradient in self.gradients]
        # An output without samples was repeated for each of them, so its gradients are added.
        pairs = zip(scaled, self.output_dimensions, strict=True)
        whole = [g.sum(0) if dim is None else g.movedim(0, dim) for g, dim in pairs]
        return list(self._pull_back(self._tensors(), whole))

    def magnitudes(self) -> Tensor:
        return torch.stack([largest(rows) for rows in self._rows()]).sum(0)

    def matrix(self, at: slice) -> Tensor:
        return torch.cat(self._rows(), dim=1)

    def keep(self, indices: Tensor) -> "Recomputed":
        pairs = zip(self._tensors(), self.dimensions, strict=True)
        kept = iter([t if d is None else t.index_select(d, indices.to(t.device)) for t, d in pairs])
        return replace(
            self,
            arguments=map_tensors(lambda _: next(kept), self.arguments),
            noise=tuple(kept),
            gradients=tuple(gradient[indices] for gradient in self.gradients),
        )

    def widened(self, scale: float) -> "Recomputed":
        wide = map_tensors(lambda t: t.double() if t.is_floating_point() else t, self.arguments)
        gradients = tuple(gradient.double() * scale for gradient in self.gradients)
        return replace(self, arguments=wide, gradients=gradients, dtype=torch.float64)

    def _tensors(self) -> list[Tensor]:
        return [*tensors_of(self.arguments), *self.noise]

    def _rows(self) -> list[Tensor]:
        """[n, ...] the samples' gradients, one matrix per parameter."""

        def of_one(tensors: list[Tensor], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            pairs = zip(tensors, self.dimensions, strict=True)
            ones = [tensor if d is None else tensor.unsqueeze(d) for tensor, d in pairs]
            return self._pull_back(ones, gradients)

        tensors, dimensions = self._tensors(), list(self.dimensions)
        try:
            with warnings.catch_warnings():
                # Raised where vmap falls back to a loop.
                warnings.filterwarnings("ignore", "There is a performance drop")
                found = vmap(of_one, in_dims=(dimensions, 0))(tensors, self.gradients)
        except RuntimeError:  # not every operation works under vmap
            pairs = list(zip(tensors, dimensions, strict=True))
            each = [
                of_one(
                    [t if d is None else t.select(d, i) for t, d in pairs],
                    tuple(gradient[i] for gradient in self.gradients),
                )
                for i in range(len(self.gradients[0]))
            ]
            found = tuple(torch.stack(list(column)) for column in zip(*each, strict=True))
        return [tensor.reshape(len(tensor), -1) for tensor in found]

    def _pull_back(
        self, tensors: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Gradients of the parameters for one batch of arguments with noise, and of gradients."""
        state = _copied_state(self.module, self.dtype)
        pieces = iter(tensors)
        args, keywords = map_tensors(lambda _: next(pieces), self.arguments)
        noise = list(pieces)

        def run(parameters: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            own = {**state, **dict(zip(self.names, parameters, strict=True))}
            with RepeatedNoise(noise):
                found = list(tensors_of(functional_call(self.module, own, args, keywords)))
            return tuple(found[place] for place in self.outputs)

        parameters = tuple(parameter.detach().to(self.dtype) for parameter in self.parameters)
        outputs, pull_back = vjp(run, parameters)[:2]
        # Gradients of one sample lack the dimension of samples, which is a reshape.
        pairs = zip(gradients, outputs, strict=True)
        found: tuple[Tensor, ...] = pull_back(tuple(g.reshape(o.shape) for g, o in pairs))[0]
        return found


def _copied_state(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Copies of parameters and buffers, floating ones in `dtype`; the module may write to them."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in tensors.items()
    }
