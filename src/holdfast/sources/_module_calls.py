"""The calls of a model's modules in one forward pass, and the module that owns each parameter."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from holdfast.checks import failure
from holdfast.sources._batch_loss import (
    Objective,
    detached,
    first_line,
    map_tensors,
    picked,
    tensors_of,
    versions_of,
)
from holdfast.sources._buffers import without_side_effects
from holdfast.sources.layers import is_known

NOT_FIRST = "does not have the samples along the first dimension"


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module."""

    name: str  # of the module in the model
    module: nn.Module
    arguments: tuple[tuple[Any, ...], dict[str, Any]]  # positional and keywords, detached
    versions: tuple[int, ...]  # of the tensors among the arguments, at the time of the call
    edges: tuple[GradientEdge | None, ...]  # where gradients of the outputs arrive, if they do
    lengths: tuple[int, ...]  # first dimensions of all tensors of arguments and outputs
    is_random: bool  # whether the call drew random numbers

    def check_unchanged(self) -> None:
        """Check that no argument was changed in place after the call."""
        if self.versions != versions_of(self.arguments):
            raise refused(self.name, self.module, "has an input that is changed in place later")


def refused(name: str, module: nn.Module, why: str) -> ValueError:
    """The error for a module without per-sample gradients."""
    requirement = "have layers with per-sample gradients (or use PerSample or MicroBatches)"
    return failure("model", requirement, f"{type(module).__name__} {name!r}, which {why}")


@contextmanager
def recorded_calls(model: nn.Module) -> Iterator[list[Call]]:
    """Records every call, within the context, of a module that owns trainable parameters."""
    calls: list[Call] = []
    owners = {
        module: name
        for name, module in model.named_modules()
        if any(p is not None and p.requires_grad for p in module._parameters.values())
    }
    before: dict[nn.Module, Tensor] = {}

    def enter(module: nn.Module, _: Any) -> None:
        before[module] = _random_state(module)

    def leave(module: nn.Module, args: tuple[Any, ...], keywords: Any, output: Any) -> Any:
        # An in-place operation on a view would rewrite the history of its base; a copy has its own.
        # Mappings are left as they are, because map_tensors would turn subclasses into plain dicts.
        has_views = any(tensor._is_view() for tensor in tensors_of(output))
        if has_views and isinstance(output, (Tensor, tuple, list)):
            output = map_tensors(lambda t: t.clone() if t._is_view() else t, output)
        # Edges, not tensors: an edge stays valid if a later operation overwrites the output.
        found = tensors_of(output)
        edges = tuple(get_gradient_edge(t) if t.requires_grad else None for t in found)
        is_random = not torch.equal(_random_state(module), before.pop(module))
        given = (args, keywords)
        lengths = tuple(len(tensor) for tensor in tensors_of((given, output)))
        name, versions = owners[module], versions_of(given)
        calls.append(Call(name, module, detached(given), versions, edges, lengths, is_random))
        return output

    handles = [module.register_forward_pre_hook(enter) for module in owners]
    handles += [module.register_forward_hook(leave, with_kwargs=True) for module in owners]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _random_state(module: nn.Module) -> Tensor:
    """The state of the generator of the module's device."""
    device = next(module.parameters()).device
    if device.type == "cpu":
        return torch.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def calls_with_one_more(objective: Objective, batch: Any, n: int) -> list[Call]:
    """The calls of a pass without side effects over the n samples and a copy of the first."""
    one_more = torch.cat([torch.arange(n), torch.zeros(1, dtype=torch.int64)])
    try:
        with without_side_effects(objective.model), recorded_calls(objective.model) as others:
            objective(picked(batch, one_more))
    except Exception as error:
        # If the model fails on the batch itself, that error is the one to show.
        with without_side_effects(objective.model):
            objective(batch)
        requirement = "take any number of samples along the first dimension"
        got = f"with one more, {first_line(error)}"
        raise failure("model", requirement, got) from error
    return others


def check_lengths(calls: Sequence[Call], others: Sequence[Call], n: int) -> None:
    """Check that tensors of length n are longer by one in `others`, with one more sample."""
    if [call.name for call in others] != [call.name for call in calls]:
        return  # the model chooses its modules at random
    for call, other in zip(calls, others, strict=True):
        pairs = zip(call.lengths, other.lengths, strict=True)
        if any(length == n != now - 1 for length, now in pairs):
            raise refused(call.name, call.module, NOT_FIRST)


def check_owners(model: nn.Module, calls: Sequence[Call], n_uses: Counter[int]) -> None:
    """Check that no module is called twice and no parameter is used by two modules.

    `n_uses` counts the operations in the graph that use each parameter, by its id.
    """
    n_calls = Counter(id(call.module) for call in calls)
    owners: dict[int, tuple[str, str, nn.Module]] = {}
    for name, module in model.named_modules():
        if n_calls[id(module)] > 1:
            raise refused(name, module, "is called more than once")
        for own, parameter in module._parameters.items():
            if parameter is None or not parameter.requires_grad:
                continue
            if id(parameter) in owners:
                raise refused(name, module, f"shares its {own} with {owners[id(parameter)][0]!r}")
            owners[id(parameter)] = name, own, module
    for key, (name, own, module) in owners.items():
        if n_calls[id(module)] and is_known(module) and n_uses[key] > 1:
            raise refused(name, module, f"has a {own} that is also used outside it")


def adopters(model: nn.Module, calls: Sequence[Call]) -> dict[int, nn.Module]:
    """Parameters, by id, whose own module is never called, with a module that computes with them.

    It is the innermost called module of unknown kind around them, such as `MultiheadAttention`,
    which reads the weight of its output layer without calling that layer.
    """
    called = {id(call.module) for call in calls}
    orphans = {
        id(parameter)
        for module in model.modules()
        if id(module) not in called
        for parameter in module._parameters.values()
        if parameter is not None
    }
    adopted: dict[int, nn.Module] = {}
    # Outer modules first, so that inner ones overwrite them.
    for call in sorted(calls, key=lambda call: call.name.count(".") + bool(call.name)):
        if not is_known(call.module):
            own = (id(parameter) for parameter in call.module.parameters())
            adopted |= {parameter: call.module for parameter in own if parameter in orphans}
    return adopted
