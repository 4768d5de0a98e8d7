"""The columns of the rows that belong to each parameter of a model."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import final

import torch
from torch import Tensor, nn

from holdfast._typing import TensorOrTensors
from holdfast.checks import check_rows, check_vector, failure
from holdfast.geometry import DenseRows, working_dtype


@final
class Layout:
    """The coordinates of each parameter in a vector [d].

    Parameters without `requires_grad` are left out; a shared parameter appears once.

    Args:
        parameters: a model, or its parameters with or without names.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> layout = Layout(model)
        >>> layout.names, layout.sizes, layout.d
        (('weight', 'bias'), (6, 2), 8)
        >>> layout.write_gradient(torch.arange(8.0))
        >>> model.bias.grad
        tensor([6., 7.])
    """

    def __init__(self, parameters: nn.Module | Iterable[Tensor | tuple[str, Tensor]]) -> None:
        seen: dict[int, tuple[str, Tensor]] = {}
        for name, parameter in _named(parameters):
            if not isinstance(parameter, Tensor) or not isinstance(name, str):
                raise failure(
                    "parameters",
                    "be a model or its parameters",
                    f"{type(name).__name__}, {type(parameter).__name__}",
                )
            if parameter.requires_grad:
                seen.setdefault(id(parameter), (name, parameter))
        if not sum(parameter.numel() for _, parameter in seen.values()):
            raise failure("parameters", "hold at least one that needs a gradient", "none")
        self.names = tuple(name for name, _ in seen.values())
        self.parameters = tuple(parameter for _, parameter in seen.values())
        self.shapes = tuple(parameter.shape for parameter in self.parameters)
        self.sizes = tuple(parameter.numel() for parameter in self.parameters)
        self.d = sum(self.sizes)

    def __repr__(self) -> str:
        return f"Layout({len(self.names)} parameters, d={self.d})"

    def rows(self, tensors: TensorOrTensors) -> DenseRows:
        """Rows with this layout: an [n, d] tensor, or one `[n, *shape]` tensor per parameter."""
        if not isinstance(tensors, Tensor):
            self._check_shapes("rows", [tensor.shape[1:] for tensor in check_rows(tensors)])
        elif tensors.ndim != 2 or tensors.shape[1] != self.d:
            requirement = f"have shape [n, {self.d}], one column per coordinate of the parameters"
            raise failure("rows", requirement, tuple(tensors.shape))
        return DenseRows(tensors, layout=self)

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """[d] one tensor per parameter, concatenated."""
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            kinds = [type(tensor).__name__ for tensor in tensors]
            raise failure("tensors", "be tensors, one per parameter", kinds)
        self._check_shapes("tensors", [tensor.shape for tensor in tensors])
        return torch.cat([tensor.flatten() for tensor in tensors])

    def values(self) -> Tensor:
        """[d] a copy of the parameters, in the widest of their dtypes and at least float32."""
        dtypes = (parameter.dtype for parameter in self.parameters)
        dtype = working_dtype(reduce(torch.promote_types, dtypes))
        return torch.cat([parameter.detach().flatten().to(dtype) for parameter in self.parameters])

    @torch.no_grad()
    def write_values(self, values: Tensor) -> None:
        """Set the parameters to the values [d]."""
        for parameter, piece in zip(self.parameters, self.split(values), strict=True):
            parameter.copy_(piece)

    def split(self, vector: Tensor) -> list[Tensor]:
        """The vector [d] as views, one per parameter and in its shape."""
        check_vector("vector", vector, self.d)
        pieces = torch.split(vector, list(self.sizes))
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    @torch.no_grad()
    def write_gradient(self, direction: Tensor) -> None:
        """Add the direction [d] to every `.grad`, as a backward pass does."""
        for parameter, piece in zip(self.parameters, self.split(direction), strict=True):
            if parameter.grad is None:
                # A copy, because `.grad` is changed in place; empty_like keeps the memory format.
                parameter.grad = torch.empty_like(parameter).copy_(piece)
            else:
                parameter.grad += piece.to(parameter.grad)

    def _check_shapes(self, name: str, shapes: Sequence[torch.Size]) -> None:
        if list(shapes) != list(self.shapes):
            requirement = f"have the parameters' shapes {[tuple(shape) for shape in self.shapes]}"
            raise failure(name, requirement, [tuple(shape) for shape in shapes])


def _named(
    parameters: nn.Module | Iterable[Tensor | tuple[str, Tensor]],
) -> Iterable[tuple[str, Tensor]]:
    if isinstance(parameters, nn.Module):
        return parameters.named_parameters()
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        raise failure("parameters", "be a model or its parameters", type(parameters).__name__)
    return [
        given if isinstance(given, tuple) and len(given) == 2 else (f"parameter {i}", given)
        for i, given in enumerate(parameters)
    ]
