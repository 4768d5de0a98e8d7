"""Rows of per-sample gradients that are never stored."""

from collections.abc import Iterable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry import CleanLengths, Gram, Lengths, Rows, full_precision, measure
from holdfast.layout import Layout
from holdfast.sources._batch_loss import versions_of
from holdfast.sources.layers import LayerGradients, Recomputed, Shared


@final
class LayerRows(Rows):
    """The gradients of n samples, layer by layer: their inner products and weighted sums.

    This is sufficient for rules in Gram space. Rules that read columns, and steps that update a
    block of columns, need rows in memory.
    """

    layout: Layout

    def __init__(
        self, layers: Sequence[LayerGradients], n: int, layout: Layout, batch: Any = None
    ) -> None:
        first = layout.parameters[0]
        self.n, self.d, self.dtype, self.device = n, layout.d, first.dtype, first.device
        self.layout = layout
        self._layers = list(layers)
        self._exact: tuple[Tensor, float, Tensor] | None = None
        self._batch = batch
        self._versions = self._current_versions()

    def __repr__(self) -> str:
        return f"LayerRows(n={self.n}, d={self.d}, dtype={self.dtype}, device={self.device})"

    @property
    def sections(self) -> tuple[int, ...]:
        return self.layout.sizes

    def reaches(self, parameter: Tensor) -> bool:
        """Whether the rows hold gradients of the parameter; otherwise they are zero."""
        return any(parameter is own for layer in self._layers for own in layer.parameters)

    def _current_versions(self) -> tuple[int, ...]:
        uses = [
            use
            for each in self._layers
            for use in (each.uses if isinstance(each, Shared) else (each,))
        ]
        again = [use for use in uses if isinstance(use, Recomputed)]
        modes = (module.training for layer in again for module in layer.module.modules())
        parameters = [own for layer in again for own in layer.parameters]
        return (*versions_of((self._batch, parameters)), *modes)

    def _check_unchanged(self) -> None:
        if self._current_versions() != self._versions:
            requirement = "be used before the batch or the model they are computed from changes"
            raise failure("rows", requirement, "a later version")

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        return measure(self, references, row_weights)

    def lengths(self) -> Lengths:
        self._check_unchanged()
        zeros = torch.zeros(self.n, device=self.device)
        with full_precision():
            total = sum((layer.squared_norms() for layer in self._layers), start=zeros)
        squares = total.cpu().double()
        # Far from the ends of float32's range no square was lost, whatever the ratio of the norms.
        usual = (squares > self.d * 1e-30) & (squares < 1e30)
        if not bool(usual.all()):
            return self.gram()
        return CleanLengths(squares.sqrt(), torch.arange(self.n))

    def products(self, references: Tensor) -> Tensor:
        """[n + r, n + r] inner products of rows and `references` [r, d]: the first, fast pass."""
        self._check_unchanged()
        return self._products(self._layers, references)

    def exact_products(self, references: Tensor, *, center: int | None, scale: float) -> Tensor:
        """[n + r, n + r] inner products of `scale * (x - c)` over rows and references, in float64.

        The center c is row `center`, or zero. Layers give inner products about the origin only;
        those about a row follow from them with the digits of float64.
        """
        if self._exact is None or self._exact[0] is not references or self._exact[1] != scale:
            wide = (layer.widened(scale) for layer in self._layers)  # one layer at a time
            self._exact = references, scale, self._products(wide, references.double() * scale)
        products = self._exact[2]
        if center is None:
            return products
        to_center = products[:, center]
        return products - to_center[:, None] - to_center[None, :] + to_center[center]

    def _products(self, layers: Iterable[LayerGradients], references: Tensor) -> Tensor:
        n, size, layout = self.n, self.n + len(references), self.layout
        total = torch.zeros(size, size, dtype=torch.float64, device=self.device)
        ids = [id(parameter) for parameter in layout.parameters]
        pieces = [dict(zip(ids, layout.split(each), strict=True)) for each in references]
        with full_precision():
            for layer in layers:
                total[:n, :n] += layer.products()
                for i, piece in enumerate(pieces, start=n):
                    along = layer.products_with([piece[id(own)] for own in layer.parameters])
                    total[:n, i] += along
                    total[i, :n] += along
        total[n:, n:] = references.double() @ references.double().T
        return total

    def magnitudes(self) -> Tensor:
        """[n] an upper bound on the entries of each row; not finite where the row may not be."""
        total = torch.zeros(self.n, dtype=torch.float64, device=self.device)
        for layer in self._layers:
            total += layer.magnitudes()
        return total

    def are_equal(self, i: int, j: int) -> bool:
        """Always False: gradients that are never formed cannot be compared."""
        return False

    def finite(self) -> Tensor:
        return torch.isfinite(self.magnitudes()).cpu()

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        used = torch.nonzero(weights)[:, 0]
        if len(used) == 0:
            return torch.zeros(self.d, dtype=self.dtype, device=self.device)
        # With most rows in use, weights of zero are cheaper than a copy, unless 0 * inf gave NaN.
        if 2 * len(used) > self.n:
            out = self._combine(weights, exact)
            if len(used) == self.n or bool(torch.isfinite(out.sum())):
                return out
        return self.keep(used)._combine(weights[used], exact)

    def _needs_float64(self, weights: Tensor) -> bool:
        """Whether a weighted sum may leave the range of the rows' dtype."""
        magnitudes = self.magnitudes()
        smallest = weights.abs().where(weights != 0, 1.0).min()
        return not float(magnitudes.max()) < 1e15 or float(smallest) < 1e-15

    def _combine(self, weights: Tensor, exact: bool) -> Tensor:
        self._check_unchanged()
        exact = exact and self._needs_float64(weights)
        out = torch.zeros(self.d, dtype=self.dtype, device=self.device)
        parameters, pieces = self.layout.parameters, self.layout.split(out)
        places = dict(zip(map(id, parameters), pieces, strict=True))
        weights = weights.to(self.device)
        with full_precision():
            for layer in self._layers:
                sums = (layer.widened(1.0) if exact else layer).combine(weights)
                for parameter, total in zip(layer.parameters, sums, strict=True):
                    assert places[id(parameter)].shape == total.shape
                    places[id(parameter)].copy_(total)
        return out

    def keep(self, indices: Tensor) -> "LayerRows":
        indices = indices.to(self.device)
        self._check_unchanged()
        layers = [layer.keep(indices) for layer in self._layers]
        return LayerRows(layers, len(indices), self.layout, self._batch)
