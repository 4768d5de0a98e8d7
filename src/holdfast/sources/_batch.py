"""Batches: a tensor, or tensors in tuples, lists and mappings, with the samples along their first dimension."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from holdfast.checks import failure


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
    """The batch with `function` applied to each of its tensors that hold samples; mappings become dictionaries."""
    if isinstance(batch, Tensor):
        return function(batch) if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(function, value) for value in batch)
    return batch


def batch_size(batch: Any) -> int:
    """How many samples the batch holds."""
    sizes = {len(tensor) for tensor in tensors_of(batch)}
    if len(sizes) != 1:
        raise failure(
            "batch",
            "hold tensors that agree on the number of samples",
            sorted(sizes) or "no tensor",
        )
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
        raise failure(
            "batch",
            f"divide into {n_rows} rows of one size (a loader's last batch: drop_last=True)",
            n_samples,
        )
    size = n_samples // n_rows
    return [picked(batch, slice(at, at + size)) for at in range(0, n_samples, size)]


def picked(batch: Any, samples: int | slice | Tensor) -> Any:
    """Some of the samples, or one of them without its first dimension."""
    return map_tensors(
        lambda tensor: tensor[
            samples.to(tensor.device) if isinstance(samples, Tensor) else samples
        ],
        batch,
    )


def first_line(error: Exception) -> str:
    """What an error says, in one line without a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def detached(batch: Any) -> Any:
    """The batch without what its tensors were computed from: only parameters are differentiated."""
    return map_tensors(torch.Tensor.detach, batch)
