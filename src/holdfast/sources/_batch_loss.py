"""The loss of a batch: the batch's tensors, the call of model and loss, and checks of both.

A batch is a tensor, or tensors in tuples, lists and mappings; samples are the first dimension.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from holdfast.checks import dtype_of, failure
from holdfast.errors import NonFiniteRowsError

Reduction = Literal["mean", "sum"]
"""How a loss combines its samples."""

LossFunction = Callable[..., Tensor]
"""Called as `loss_fn(model(inputs), targets)`; returns a scalar."""


class Objective:
    """`loss_fn(model(inputs), targets)`, or `loss_fn(model(inputs))` without targets.

    The model receives a mapping of inputs as keywords, and a tuple or list as positional arguments.
    The loss combines samples by its `reduction`; by default `loss_fn.reduction` or else "mean".
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, reduction: Reduction | None
    ) -> None:
        if not callable(loss_fn):
            raise failure("loss_fn", "be a function of output and targets", type(loss_fn).__name__)
        own = getattr(loss_fn, "reduction", None)
        if own in ("mean", "sum") and reduction not in (None, own):
            raise failure("reduction", f"be that of the loss, {own!r}", repr(reduction))
        if reduction not in (None, "mean", "sum"):
            raise failure("reduction", "be 'mean' or 'sum'", repr(reduction))
        self.model = model
        self.loss_fn = loss_fn
        self.reduction: Reduction = "sum" if "sum" in (reduction, own) else "mean"

    def __call__(self, batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch (inputs, targets)."""
        inputs, targets = batch
        if isinstance(inputs, Mapping):
            output = self.model(**inputs)
        else:
            output = self.model(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
        loss = self.loss_fn(output) if targets is None else self.loss_fn(output, targets)
        if not isinstance(loss, Tensor) or not loss.is_floating_point():
            raise failure("loss_fn", "return a floating tensor", dtype_of(loss))
        return loss

    def total(self, batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch as a scalar."""
        loss = self(batch)
        if loss.numel() != 1:
            requirement = "return a scalar (reduction='mean' or 'sum')"
            raise failure("loss_fn", requirement, f"shape {tuple(loss.shape)}")
        return loss.reshape(())

    def factor(self, n_rows: int) -> float:
        """The factor of each of `n_rows` rows that makes their mean the gradient of the batch."""
        return float(n_rows) if self.reduction == "sum" else 1.0


def check_losses(losses: Tensor) -> None:
    """Check that at least half of the losses [n] are finite."""
    n_bad = int((~torch.isfinite(losses)).sum())
    if 2 * n_bad > len(losses):
        raise NonFiniteRowsError(
            "`loss_fn` must be finite for at least half of the rows, "
            f"got {n_bad} of {len(losses)} with NaN or infinity."
        )


def check_independent_samples(model: nn.Module) -> None:
    """Check that no layer normalizes over samples or averages statistics over them."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            mixes = module.training or module.running_mean is None
        elif isinstance(module, _InstanceNorm):
            mixes = module.training and module.track_running_stats
        else:
            continue
        if mixes:
            requirement = "keep samples independent (use eval(), GroupNorm or MicroBatches)"
            got = f"{type(module).__name__} {name!r}, which mixes samples"
            raise failure("model", requirement, got)


def check_differentiable(loss: Tensor) -> None:
    """Check that the loss has a graph, and that `torch.autograd.grad` can differentiate it."""
    if not loss.requires_grad:
        requirement = "depend on the model's trainable parameters"
        raise failure("loss_fn", requirement, "a loss without a graph")
    # A reentrant checkpoint hides its parameters from the graph: their gradients would be zero.
    if "CheckpointFunctionBackward" in {node.name() for node in _graph_of(loss)}:
        requirement = "use checkpoints with use_reentrant=False"
        raise failure("model", requirement, "a reentrant checkpoint")


def count_uses(loss: Tensor) -> Counter[int]:
    """How many operations in the graph of the loss use each leaf, by the id of the leaf."""
    children = (child for node in _graph_of(loss) for child, _ in node.next_functions)
    leaves = (getattr(child, "variable", None) for child in children)
    return Counter(id(leaf) for leaf in leaves if leaf is not None)


def _graph_of(loss: Tensor) -> set[Node]:
    """All operations and leaves in the autograd graph of the loss."""
    seen: set[Node] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            for child, _ in node.next_functions:
                waiting.append(child)
    return seen


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """All tensors that hold samples: scalars and other objects are shared by all samples."""
    if isinstance(batch, Tensor):
        if batch.ndim:
            yield batch
    elif isinstance(batch, (tuple, list, Mapping)):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from tensors_of(value)


def map_tensors(function: Callable[[Tensor], Any], batch: Any) -> Any:
    """The batch with `function` applied to its tensors of samples; mappings become dicts."""
    if isinstance(batch, Tensor):
        return function(batch) if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        values = map(partial(map_tensors, function), batch)
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch


def detached(batch: Any) -> Any:
    """The batch without its autograd history: only parameters are differentiated."""
    return map_tensors(torch.Tensor.detach, batch)


def versions_of(batch: Any) -> tuple[int, ...]:
    """How often each tensor was written in place."""
    return tuple(tensor._version for tensor in tensors_of(batch) if not tensor.is_inference())


def batch_size(batch: Any) -> int:
    """The number of samples."""
    sizes = {len(tensor) for tensor in tensors_of(batch)}
    if len(sizes) != 1:
        requirement = "hold tensors that agree on the number of samples"
        raise failure("batch", requirement, sorted(sizes) or "no tensor")
    size = sizes.pop()
    if size == 0:
        raise failure("batch", "hold at least one sample", 0)
    return size


def slice_size(batch: Any, n_rows: int) -> int:
    """The number of samples in each of `n_rows` slices of one size."""
    n_samples = batch_size(batch)
    if n_samples < n_rows:
        raise failure("batch", f"hold at least as many samples as rows ({n_rows})", n_samples)
    if n_samples % n_rows:
        requirement = f"divide into {n_rows} rows of one size (set drop_last=True in the loader)"
        raise failure("batch", requirement, n_samples)
    return n_samples // n_rows


def picked(batch: Any, samples: int | slice | Tensor) -> Any:
    """Some of the samples, or one of them without the first dimension."""

    def pick(tensor: Tensor) -> Tensor:
        return tensor[samples.to(tensor.device) if isinstance(samples, Tensor) else samples]

    return map_tensors(pick, batch)


def first_line(error: Exception) -> str:
    """The first line of an error's message, without a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
