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


@final
@dataclass(frozen=True, eq=False)
class Recomputed(LayerGradients):
    """The parameters of any module, by running it again.

    The samples' gradients of this one module are formed, used and dropped.

    Attributes:
        module: the module.
        names: names of the parameters in the module.
        arguments: positional arguments and keywords of the call, samples along the first dimension.
        gradients: [n, ...] with respect to those outputs that influence the losses.
        outputs: the places of these among all tensors that the module returned.
        dtype: the dtype of the computation.
    """

    module: nn.Module
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    gradients: tuple[Tensor, ...]
    outputs: tuple[int, ...]
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
        gradients = [weighted(gradient, weights) for gradient in self.gradients]
        return list(self._pull_back(self.arguments, gradients))

    def magnitudes(self) -> Tensor:
        return torch.stack([largest(rows) for rows in self._rows()]).sum(0)

    def keep(self, indices: Tensor) -> "Recomputed":
        arguments = map_tensors(lambda tensor: tensor[indices.to(tensor.device)], self.arguments)
        gradients = tuple(gradient[indices] for gradient in self.gradients)
        return replace(self, arguments=arguments, gradients=gradients)

    def widened(self, scale: float) -> "Recomputed":
        wide = map_tensors(lambda t: t.double() if t.is_floating_point() else t, self.arguments)
        gradients = tuple(gradient.double() * scale for gradient in self.gradients)
        return replace(self, arguments=wide, gradients=gradients, dtype=torch.float64)

    def _rows(self) -> list[Tensor]:
        """[n, ...] the samples' gradients, one matrix per parameter."""

        def of_one(tensors: list[Tensor], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            pieces = iter(tensors)
            one = map_tensors(lambda _: next(pieces).unsqueeze(0), self.arguments)
            return self._pull_back(one, [gradient.unsqueeze(0) for gradient in gradients])

        tensors = list(tensors_of(self.arguments))
        try:
            with warnings.catch_warnings():
                # Raised where vmap falls back to a loop.
                warnings.filterwarnings("ignore", "There is a performance drop")
                found = vmap(of_one)(tensors, self.gradients)
        except RuntimeError:  # not every operation works under vmap
            each = [
                of_one([t[i] for t in tensors], tuple(g[i] for g in self.gradients))
                for i in range(len(self.gradients[0]))
            ]
            found = tuple(torch.stack(list(column)) for column in zip(*each, strict=True))
        return [tensor.reshape(len(tensor), -1) for tensor in found]

    def _pull_back(self, arguments: Any, gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Gradients of the parameters for one batch of arguments and output gradients."""
        state = _copied_state(self.module, self.dtype)

        def run(parameters: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            own = {**state, **dict(zip(self.names, parameters, strict=True))}
            found = list(tensors_of(functional_call(self.module, own, arguments[0], arguments[1])))
            return tuple(found[place] for place in self.outputs)

        parameters = tuple(parameter.detach().to(self.dtype) for parameter in self.parameters)
        found: tuple[Tensor, ...] = vjp(run, parameters)[1](tuple(gradients))[0]
        return found


def _copied_state(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Copies of parameters and buffers, floating ones in `dtype`; the module may write to them."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in tensors.items()
    }
