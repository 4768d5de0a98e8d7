"""What flows through the layers of a model during one forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from holdfast.checks import failure
from holdfast.sources._batch import detached, map_tensors, tensors_of


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module: what it was given, and where the gradients of what it returned arrive."""

    name: str
    module: nn.Module
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    versions: tuple[int, ...]
    edges: tuple[GradientEdge | None, ...]
    lengths: tuple[int, ...]
    """First dimensions of all tensors that went in and came out."""

    drew: bool
    """Whether random numbers were drawn."""

    def check_unchanged(self) -> None:
        """The arguments hold what they held at the call."""
        if self.versions != versions_of(self.arguments):
            raise refused(self.name, self.module, "has an input that is changed in place later")


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Call]]:
    """Every call, while the context lasts, of a module that owns trainable parameters."""
    calls: list[Call] = []
    owners = {
        module: name
        for name, module in model.named_modules()
        if any(
            parameter is not None and parameter.requires_grad
            for parameter in module._parameters.values()
        )
    }
    before: dict[nn.Module, Tensor] = {}

    def enter(module: nn.Module, _: Any) -> None:
        before[module] = random_state(module)

    def leave(
        module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Any
    ) -> Any:
        # Changing a view in place changes the history of what it views; a copy has a history of its own.
        output = (
            map_tensors(lambda tensor: tensor.clone() if tensor._is_view() else tensor, output)
            if has_view(output)
            else output
        )
        # An edge stays what it is when a later operation overwrites the output in place.
        edges = tuple(
            get_gradient_edge(tensor) if tensor.requires_grad else None
            for tensor in tensors_of(output)
        )
        drew = not torch.equal(random_state(module), before.pop(module))
        lengths = tuple(len(tensor) for tensor in tensors_of((args, keywords, output)))
        calls.append(
            Call(
                owners[module],
                module,
                detached((args, keywords)),
                versions_of((args, keywords)),
                edges,
                lengths,
                drew,
            )
        )
        return output

    handles = [module.register_forward_pre_hook(enter) for module in owners]
    handles += [module.register_forward_hook(leave, with_kwargs=True) for module in owners]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def has_view(output: Any) -> bool:
    """Whether a tensor of the output is a view of another, so that it must be copied; outputs of unknown kind are left alone."""
    return isinstance(output, (Tensor, tuple, list)) and any(
        tensor._is_view() for tensor in tensors_of(output)
    )


def random_state(module: nn.Module) -> Tensor:
    """The state of the generator that the module would draw from."""
    device = next(module.parameters()).device
    return (
        torch.get_rng_state()
        if device.type == "cpu"
        else torch.get_device_module(device).get_rng_state(device)
    )


def versions_of(arguments: Any) -> tuple[int, ...]:
    """How often each tensor was written to."""
    return tuple(tensor._version for tensor in tensors_of(arguments) if not tensor.is_inference())


def refused(name: str, module: nn.Module, why: str) -> ValueError:
    """The error for a module whose per-sample gradients cannot be told."""
    got = f"{type(module).__name__} {name!r}, which {why}"
    return failure(
        "model",
        "have layers whose samples can be told apart (PerSample and MicroBatches ask less)",
        got,
    )
