"""Rules with the interface of ByzFL's aggregators; ByzFL need not be installed."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from holdfast.adapters._bare_rule import bare_rule
from holdfast.aggregators import Aggregator
from holdfast.checks import as_tensor, failure, is_array

__all__ = ["VectorRule"]

_KIND_OF_VECTORS = "be a list of 1-D vectors or a matrix [n, d], of tensors or NumPy arrays"


@final
class VectorRule:
    """Any rule as a function of n vectors, to replace one of `byzfl.aggregators`.

    The vectors are a list of tensors or of NumPy arrays, or a tensor or array [n, d]. The result is
    a tensor or an array [d] with the dtype of the vectors. (ByzFL converts all tensors to float32.)
    Vectors that are not finite get no weight.

    Args:
        rule: the rule or its name, such as `"mixing(n_bad=3) | geometric-median"`.
        generator: source of random numbers, for rules that draw some.

    Example:
        >>> VectorRule("geometric-median")([torch.ones(2), torch.ones(2), torch.zeros(2)])
        tensor([1., 1.])
    """

    def __init__(
        self, rule: Aggregator | str = "radius-filter", *, generator: torch.Generator | None = None
    ) -> None:
        self.rule, self._arguments = bare_rule(rule, generator)

    def __call__(self, vectors: Any) -> Any:
        """Return the aggregate [d] of the n vectors."""
        if isinstance(vectors, (list, tuple)):
            matrix = _stacked(vectors)
            vector = self.rule(matrix, **self._arguments)
            return vector.numpy() if is_array(vectors[0]) else vector
        if not isinstance(vectors, Tensor) and not is_array(vectors):
            raise failure("vectors", _KIND_OF_VECTORS, type(vectors).__name__)
        if vectors.ndim != 2:
            raise failure("vectors", _KIND_OF_VECTORS, f"shape {tuple(vectors.shape)}")
        return self.rule(vectors, **self._arguments)

    def aggregate_vectors(self, vectors: Any) -> Any:
        """Return the same, under the method name of `byzfl.RobustAggregator`."""
        return self(vectors)

    def __repr__(self) -> str:
        return f"VectorRule({self.rule})"


def _stacked(vectors: Sequence[Any]) -> Tensor:
    """The matrix [n, d] of vectors of one kind, one length and one dtype."""
    if not vectors:
        raise failure("vectors", _KIND_OF_VECTORS, "an empty list")
    if not all(isinstance(one, Tensor) for one in vectors) and not all(map(is_array, vectors)):
        kinds = sorted({type(one).__name__ for one in vectors})
        raise failure("vectors", _KIND_OF_VECTORS, f"a list of {' and '.join(kinds)}")
    tensors = [as_tensor(one) for one in vectors]
    for what, found in (
        ("shape", [tuple(one.shape) for one in tensors]),
        ("dtype", [one.dtype for one in tensors]),
        ("device", [one.device for one in tensors]),
    ):
        if len(set(found)) > 1:
            other = next(one for one in found if one != found[0])
            raise failure("vectors", f"agree on the {what} (the first has {found[0]})", other)
    if tensors[0].ndim != 1:
        raise failure("vectors", _KIND_OF_VECTORS, f"vectors of shape {tuple(tensors[0].shape)}")
    return torch.stack(tensors)
