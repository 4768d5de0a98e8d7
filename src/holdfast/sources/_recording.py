"""What flows through the layers of a model during one forward pass."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from holdfast._checks import failure
from holdfast.sources._batch import map_tensors, tensors_of


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module: what it was given, and where the gradients of what it returned arrive."""

    name: str
    module: nn.Module
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    versions: tuple[int, ...]
    edges: tuple[GradientEdge | None, ...]

    def check_unchanged(self) -> None:
        """The arguments hold what they held at the call."""
        if self.versions != tuple(tensor._version for tensor in tensors_of(self.arguments)):
            raise refused(self.name, self.module, "has an input that is changed in place later")


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Call]]:
    """Every call, while the context lasts, of a module that owns trainable parameters."""
    calls: list[Call] = []
    owners = {
        id(module): name
        for name, module in model.named_modules()
        if any(p.requires_grad for p in module._parameters.values() if p is not None)
    }

    def note(module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        arguments = map_tensors(Tensor.detach, (args, keywords))
        versions = tuple(tensor._version for tensor in tensors_of((args, keywords)))
        # An edge stays what it is when a later operation overwrites the output in place.
        edges = tuple(get_gradient_edge(t) if t.requires_grad else None for t in tensors_of(output))
        calls.append(Call(owners[id(module)], module, arguments, versions, edges))

    handles = [m.register_forward_hook(note, with_kwargs=True) for m in model.modules() if id(m) in owners]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def uses(total: Tensor) -> Counter[int]:
    """How often each parameter (by its id) is used in the graph of a loss."""
    found: Counter[int] = Counter()
    seen, waiting = set(), [total.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for following, _ in node.next_functions:
            leaf = getattr(following, "variable", None)
            if leaf is None:
                waiting.append(following)
            else:
                found[id(leaf)] += 1
    return found


def refused(name: str, module: nn.Module, why: str) -> ValueError:
    """The error for a module whose per-sample gradients cannot be told."""
    return failure(
        "model",
        "have layers whose samples can be told apart (PerSample and MicroBatches ask less)",
        f"{type(module).__name__} {name!r}, which {why}",
    )
