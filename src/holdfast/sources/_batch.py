"""Batches: a tensor, or tensors in a tuple, a list or a mapping, with the samples along their first dimension."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from holdfast._checks import failure


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """All tensors of the batch that hold samples; scalars and what is no tensor are the same for every sample."""
    if isinstance(batch, Tensor):
        if batch.ndim:
            yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, (tuple, list)):
        for value in batch:
            yield from tensors_of(value)


def map_tensors(function: Callable[[Tensor], Any], batch: Any) -> Any:
    """The batch with `function` applied to each of its tensors that hold samples."""
    if isinstance(batch, Tensor):
        return function(batch) if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(map_tensors(function, value) for value in batch)
    return batch


def batch_size(batch: Any) -> int:
    """How many samples the batch holds."""
    sizes = {len(tensor) for tensor in tensors_of(batch)}
    if len(sizes) != 1:
        raise failure("batch", "hold tensors that agree on the number of samples", sorted(sizes) or "no tensor")
    size = sizes.pop()
    if size == 0:
        raise failure("batch", "hold at least one sample", 0)
    return size


def slices(batch: Any, n_rows: int) -> list[Any]:
    """The batch as `n_rows` batches of consecutive samples, all of one size."""
    n_samples = batch_size(batch)
    if n_samples < n_rows:
        raise failure("batch", f"hold at least as many samples as rows ({n_rows})", n_samples)
    if n_samples % n_rows:
        raise failure("batch", f"divide into {n_rows} rows of one size (a loader's last batch: drop_last=True)", n_samples)
    size = n_samples // n_rows
    return [between(batch, at, at + size) for at in range(0, n_samples, size)]


def between(batch: Any, start: int, stop: int) -> Any:
    """The samples from `start` to `stop`."""
    return map_tensors(lambda tensor: tensor[start:stop], batch)
