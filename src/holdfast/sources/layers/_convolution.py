from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

from holdfast.sources.layers._layer_gradients import LIMIT, LayerGradients, dots, largest, weighted
from holdfast.sources.layers._linear import (
    explicit_norms,
    explicit_products,
    pairwise_products,
    pays_pairwise,
)

Numbers = tuple[int, ...]
Function = Callable[..., Tensor]
CONVOLVE: tuple[Function, ...] = (functional.conv1d, functional.conv2d, functional.conv3d)
WEIGHT_GRADIENT: tuple[Function, ...] = (conv1d_weight, conv2d_weight, conv3d_weight)


@final
@dataclass(frozen=True, eq=False)
class ConvolutionWeight(LayerGradients):
    """The weight of a convolution in one to three dimensions: linear in the patch of each output.

    Patches are never formed all at once. For one offset in the kernel they are a shifted window of
    the input; a few windows at a time give a chunk of columns of the samples' gradients.

    Attributes:
        inputs: [n, C, ...] the inputs of the layer.
        gradients: [n, O, ...] gradients with respect to its outputs.
        stride: one number per dimension.
        dilation: one number per dimension.
        groups: number of groups of channels.
        padding: two numbers per dimension, last dimension first, as in `torch.nn.functional.pad`.
        padding_mode: the mode of that padding.
    """

    parameters: tuple[Tensor]
    inputs: Tensor
    gradients: Tensor
    stride: Numbers
    dilation: Numbers
    groups: int
    padding: Numbers
    padding_mode: str

    @property
    def _options(self) -> dict[str, Any]:
        return {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}

    def _padded(self) -> Tensor:
        if not any(self.padding):
            return self.inputs
        return functional.pad(self.inputs, self.padding, mode=self.padding_mode)

    def products(self) -> Tensor:
        n, n_outputs, *shape = self.gradients.shape
        n_inputs = self.parameters[0][0].numel()
        n_positions = torch.Size(shape).numel()
        if self.groups == 1 and pays_pairwise(n, n_positions, n_outputs, n_inputs):
            patches = self._patches(list(self._windows()))[:, 0]
            return pairwise_products(patches, self.gradients.flatten(2).mT)
        return explicit_products(self._chunks())

    def squared_norms(self) -> Tensor:
        return explicit_norms(self._chunks())

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        n, n_outputs = self.gradients.shape[:2]
        gradients = torch.unflatten(self.gradients.flatten(2), 1, (self.groups, -1))
        windows = list(self._windows())
        n_together = max(1, LIMIT // (n * n_outputs * self.parameters[0].shape[1]))
        for at in range(0, len(windows), n_together):
            yield gradients, self._patches(windows[at : at + n_together])

    def _windows(self) -> Iterator[Tensor]:
        """[n, C, ...] for each offset in the kernel, the inputs it meets at all positions."""
        inputs = self._padded()
        for offsets in product(*map(range, self.parameters[0].shape[2:])):
            window = inputs
            sizes = zip(offsets, self.stride, self.dilation, strict=True)
            for dimension, (offset, stride, dilation) in enumerate(sizes, 2):
                n_positions, start = self.gradients.shape[dimension], offset * dilation
                at = slice(start, start + stride * (n_positions - 1) + 1, stride)
                window = window[(slice(None),) * dimension + (at,)]
            yield window

    def _patches(self, windows: list[Tensor]) -> Tensor:
        """[n, groups, T, c] the inputs of these windows at every position, by group of channels."""
        channels_last = [window.movedim(1, -1) for window in windows]
        stacked = torch.stack(channels_last, dim=-2).flatten(1, -3)  # [n, T, k, C]
        grouped = torch.unflatten(stacked, -1, (self.groups, -1))
        return grouped.permute(0, 3, 1, 2, 4).flatten(3)

    def products_with(self, vectors: Sequence[Tensor]) -> Tensor:
        # <g_i, v> is the output of a convolution with weight v, times the output gradients.
        convolve = CONVOLVE[len(self.stride) - 1]
        outputs = convolve(self._padded(), vectors[0].to(self.inputs), **self._options)
        return dots(outputs, self.gradients)

    def combine(self, weights: Tensor) -> list[Tensor]:
        gradients, shape = weighted(self.gradients, weights), self.parameters[0].shape
        weight_gradient = WEIGHT_GRADIENT[len(self.stride) - 1]
        return [weight_gradient(self._padded(), shape, gradients, **self._options)]

    def magnitudes(self) -> Tensor:
        return largest(self.inputs) * largest(self.gradients) * self.gradients[0, 0].numel()

    def matrix(self, at: slice) -> Tensor:
        # In the order of the windows: inner products need the same order in all uses only.
        return torch.cat([torch.matmul(*chunk).flatten(1) for chunk in self._chunks()], dim=1)

    def keep(self, indices: Tensor) -> "ConvolutionWeight":
        return replace(self, inputs=self.inputs[indices], gradients=self.gradients[indices])

    def widened(self, scale: float) -> "ConvolutionWeight":
        return replace(self, inputs=self.inputs.double(), gradients=self.gradients.double() * scale)
