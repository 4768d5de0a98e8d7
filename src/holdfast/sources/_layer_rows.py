"""Rows of per-sample gradients that are never written down."""

from collections.abc import Iterable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry import CleanLengths, Gram, Lengths, Rows, full_precision, measure
from holdfast.layout import Layout
from holdfast.sources._recording import versions_of
from holdfast.sources.layers import LayerGradients, Recomputed


@final
class LayerRows(Rows):
    """The gradients of n samples, known layer by layer: their inner products, and sums of them.

    That is all a rule in Gram space asks for. Rules that look at columns, and steps that move a block of them, need rows in memory.
    """

    def __init__(
        self, layers: Sequence[LayerGradients], n: int, layout: Layout, batch: Any = None
    ) -> None:
        first = layout.parameters[0]
        self.n, self.d, self.dtype, self.device = n, layout.d, first.dtype, first.device
        self.layout = layout
        self._layers = list(layers)
        self._exact: tuple[Tensor, float, Tensor] | None = None
        self._batch = batch
        self._versions = self._versions_now()

    def __repr__(self) -> str:
        return f"LayerRows(n={self.n}, d={self.d}, dtype={self.dtype}, device={self.device})"

    @property
    def sections(self) -> tuple[int, ...]:
        return self._known_layout.sizes

    @property
    def _known_layout(self) -> Layout:
        assert isinstance(self.layout, Layout)
        return self.layout

    def reaches(self, parameter: Tensor) -> bool:
        """Whether the rows hold gradients of the parameter that may not be zero."""
        return any(parameter is own for layer in self._layers for own in layer.parameters)

    def _versions_now(self) -> tuple[int, ...]:
        read = [
            parameter
            for layer in self._layers
            if isinstance(layer, Recomputed)
            for parameter in layer.parameters
        ]
        return versions_of((self._batch, read))

    def _check_unchanged(self) -> None:
        if self._versions_now() != self._versions:
            raise failure(
                "rows",
                "be used before the batch or the parameters they are computed from change",
                "a later version",
            )

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        return measure(self, references, row_weights)

    def lengths(self) -> Lengths:
        self._check_unchanged()
        with full_precision():
            squares = (
                sum(
                    (layer.squared_norms() for layer in self._layers),
                    start=torch.zeros(self.n, device=self.device),
                )
                .cpu()
                .double()
            )
        # Far from the ends of float32's range no square was lost, whatever the ratio of the norms.
        usual = (squares > self.d * 1e-30) & (squares < 1e30)
        return (
            CleanLengths(squares.sqrt(), torch.arange(self.n)) if bool(usual.all()) else self.gram()
        )

    def products(self, references: Tensor) -> Tensor:
        """[n + r, n + r] inner products among the rows and `references` [r, d]: the first, fast pass."""
        self._check_unchanged()
        return self._products(self._layers, references)

    def exact_products(self, references: Tensor, *, center: int | None, scale: float) -> Tensor:
        """[n + r, n + r] inner products of `scale * (x - c)` over rows and references, in float64; c is row `center`, or zero.

        Only inner products about the origin can be formed layer by layer. Those about a row follow from them, with float64's digits.
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
        n, layout = self.n, self._known_layout
        total = torch.zeros(
            n + len(references), n + len(references), dtype=torch.float64, device=self.device
        )
        pieces = [
            dict(zip(map(id, layout.parameters), layout.split(reference), strict=True))
            for reference in references
        ]
        with full_precision():
            for layer in layers:
                total[:n, :n] += layer.products()
                for i, piece in enumerate(pieces, start=n):
                    along = layer.products_with(
                        [piece[id(parameter)] for parameter in layer.parameters]
                    )
                    total[:n, i] += along
                    total[i, :n] += along
        total[n:, n:] = references.double() @ references.double().T
        return total

    def magnitudes(self) -> Tensor:
        """[n] at least the largest magnitude of each row; not finite where the row may not be."""
        total = torch.zeros(self.n, dtype=torch.float64, device=self.device)
        for layer in self._layers:
            total += layer.magnitudes()
        return total

    def finite(self) -> Tensor:
        return torch.isfinite(self.magnitudes()).cpu()

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        used = torch.nonzero(weights)[:, 0]
        if len(used) == 0:
            return torch.zeros(self.d, dtype=self.dtype, device=self.device)
        if 2 * len(used) > self.n:
            out = self._combine(weights, exact)
            if len(used) == self.n or bool(torch.isfinite(out.sum())):
                return out
        return self.keep(used)._combine(weights[used], exact)

    def _needs_float64(self, weights: Tensor) -> bool:
        """Whether a weighted sum in the rows' dtype would meet numbers near the ends of its range."""
        magnitudes = self.magnitudes()
        smallest = weights.abs().where(weights != 0, 1.0).min()
        return not float(magnitudes.max()) < 1e15 or float(smallest) < 1e-15

    def _combine(self, weights: Tensor, exact: bool) -> Tensor:
        self._check_unchanged()
        exact = exact and self._needs_float64(weights)
        out = torch.zeros(self.d, dtype=self.dtype, device=self.device)
        layout = self._known_layout
        places = dict(zip(map(id, layout.parameters), layout.split(out), strict=True))
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
        return LayerRows(
            [layer.keep(indices) for layer in self._layers],
            len(indices),
            self._known_layout,
            self._batch,
        )
