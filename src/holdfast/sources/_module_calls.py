"""The calls of a model's modules in one forward pass, and the module that owns each parameter."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
from holdfast.sources.layers import Dimensions, RecordedNoise, is_known

NO_DIMENSION = "has no dimension of its own for the samples in one of its tensors"
Shapes = list[tuple[torch.Size, ...]]  # of arguments, noise and outputs
ShapesOfCalls = dict[
    tuple[str, int], Sequence[tuple[torch.Size | None, ...]]
]  # by the name of the module and the number of calls


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module."""

    name: str  # of the module in the model
    module: nn.Module
    arguments: tuple[tuple[Any, ...], dict[str, Any]]  # positional and keywords, detached
    versions: tuple[int, ...]  # of the tensors among the arguments, at the time of the call
    noise: tuple[Tensor, ...]  # factors of dropout in the call
    is_random: bool  # whether the call drew other random numbers
    edges: tuple[GradientEdge | None, ...]  # where gradients of the outputs arrive, if they do
    shapes: Shapes
    dimensions: list[Dimensions]  # of the samples, in arguments, noise and outputs

    @property
    def is_repeated(self) -> bool:
        """Whether the call does not depend on the samples: its outputs are repeated for each."""
        return _is_shared(self.dimensions)

    def check_unchanged(self) -> None:
        """Check that no argument was changed in place after the call."""
        if self.versions != versions_of(self.arguments):
            raise refused(self.name, self.module, "has an input that is changed in place later")


def refused(name: str, module: nn.Module, why: str) -> ValueError:
    """The error for a module without per-sample gradients."""
    requirement = "have layers with per-sample gradients (or use PerSample or MicroBatches)"
    return failure("model", requirement, f"{type(module).__name__} {name!r}, which {why}")


@contextmanager
def recorded_calls(
    model: nn.Module, n: int, with_one_more: ShapesOfCalls | None = None
) -> Iterator[list[Call]]:
    """Records every call, within the context, of a module that owns trainable parameters.

    Args:
        model: the model.
        n: the number of samples.
        with_one_more: the shapes in a pass with one more sample, which show the dimensions of the
            samples. Without it these are not looked for.
    """
    recorder = _Recorder(model, n, with_one_more)
    try:
        # No module draws noise of its own in most models.
        with recorder.noise if recorder.unknown else nullcontext():
            yield recorder.calls
    finally:
        for handle in recorder.handles:
            handle.remove()


class _Recorder:
    """The hooks of `recorded_calls`."""

    def __init__(self, model: nn.Module, n: int, with_one_more: ShapesOfCalls | None) -> None:
        self.calls: list[Call] = []
        self._n = n
        self._with_one_more = with_one_more
        self._n_calls: Counter[str] = Counter()
        self._names = {
            module: name
            for name, module in model.named_modules()
            if any(p is not None and p.requires_grad for p in module._parameters.values())
        }
        self.noise = RecordedNoise(next(model.parameters()).device)
        # Before the hooks are set: a module with hooks is not known.
        self.unknown = {module for module in self._names if not is_known(module)}
        self.handles = [m.register_forward_pre_hook(self._enter) for m in self.unknown]
        leave = self._leave
        self.handles += [m.register_forward_hook(leave, with_kwargs=True) for m in self._names]

    def _enter(self, *_: Any) -> None:
        self.noise.begin()

    def _leave(
        self, module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Any
    ) -> Any:
        name, given = self._names[module], (args, keywords)
        recorded = self.noise.end() if module in self.unknown else None
        noise = [] if recorded is None else recorded.factors
        tensors = (tensors_of(given), noise, tensors_of(output))
        shapes = [tuple(tensor.shape for tensor in each) for each in tensors]
        dimensions = self._dimensions(name, module, shapes)
        if self._with_one_more is not None:
            pairs = zip(noise, dimensions[1], strict=True)
            noise = [f if d is None else f.unflatten(d, (self._n, -1)) for f, d in pairs]
            output = _prepared(output, self._n if _is_shared(dimensions) else None)
        else:
            output = _prepared(output, None)
        # Edges, not tensors: an edge stays valid if a later operation overwrites the output.
        found = tensors_of(output)
        edges = tuple(get_gradient_edge(t) if t.requires_grad else None for t in found)
        self.calls.append(
            Call(
                name,
                module,
                detached(given),
                versions_of(given),
                tuple(noise),
                recorded is not None and not recorded.is_complete,
                edges,
                shapes,
                dimensions,
            )
        )
        return output

    def _dimensions(self, name: str, module: nn.Module, shapes: Shapes) -> list[Dimensions]:
        """The dimensions of the samples in arguments, noise and outputs."""
        if self._with_one_more is None:
            return []
        key = name, self._n_calls[name]
        self._n_calls[name] += 1
        # A model that chooses its modules at random may have left this one out.
        later = self._with_one_more.get(key, [(None,) * len(each) for each in shapes])
        found = [
            tuple(_dimension(*pair, self._n) for pair in zip(*both, strict=True))
            for both in zip(shapes, later, strict=True)
        ]
        # Several entries per sample, as in a product of samples and heads, are for noise only.
        for each, known in ((shapes[0], found[0]), (shapes[2], found[2])):
            for shape, at in zip(each, known, strict=True):
                if at is not None and (at < 0 or shape[at] != self._n):
                    raise refused(name, module, NO_DIMENSION)
        if -1 in found[1]:
            raise refused(name, module, NO_DIMENSION)
        return found


def _is_shared(dimensions: list[Dimensions]) -> bool:
    return all(dimension is None for each in dimensions for dimension in each)


def _dimension(shape: torch.Size, later: torch.Size | None, n: int) -> int | None:
    """The dimension of the n samples, given the shape with one more; -1 if there is none."""
    if later is None:
        return 0 if shape[0] == n else -1
    if shape == later:
        return None
    pairs = zip(shape, later, strict=False)
    changed = [i for i, (now, then) in enumerate(pairs) if now != then]
    if len(shape) != len(later) or len(changed) != 1:
        return -1
    size = shape[changed[0]] // n
    grows = (shape[changed[0]], later[changed[0]]) == (size * n, size * (n + 1))
    return changed[0] if grows else -1


def _prepared(output: Any, n: int | None) -> Any:
    """The output without views, and if n is given with every tensor repeated for n samples."""
    # An in-place operation on a view would rewrite the history of its base; a copy has its own.
    needs_copy = any(n is not None or tensor._is_view() for tensor in tensors_of(output))
    # Mappings are left as they are, because map_tensors would turn subclasses into plain dicts.
    if not needs_copy or not isinstance(output, (Tensor, tuple, list)):
        return output

    def copied(tensor: Tensor) -> Tensor:
        if n is not None:
            return repeated(tensor, n).clone()
        return tensor.clone() if tensor._is_view() else tensor

    return map_tensors(copied, output)


def repeated(tensor: Tensor, n: int) -> Tensor:
    """[n, ...] a tensor that is the same for all samples; a first dimension of one is replaced."""
    one = tensor if tensor.shape[0] == 1 else tensor.unsqueeze(0)
    return one.expand(n, *one.shape[1:])


def shapes_with_one_more(objective: Objective, batch: Any, n: int) -> ShapesOfCalls:
    """Shapes in a pass without side effects over the n samples and a copy of the first."""
    one_more = torch.cat([torch.arange(n), torch.zeros(1, dtype=torch.int64)])
    model = objective.model
    try:
        with without_side_effects(model), recorded_calls(model, n + 1) as calls:
            objective(picked(batch, one_more))
    except Exception as error:
        # If the model fails on the batch itself, that error is the one to show.
        with without_side_effects(model):
            objective(batch)
        requirement = "take any number of samples along the first dimension"
        got = f"with one more, {first_line(error)}"
        raise failure("model", requirement, got) from error
    n_calls: Counter[str] = Counter()
    found: ShapesOfCalls = {}
    for call in calls:
        found[call.name, n_calls[call.name]] = call.shapes
        n_calls[call.name] += 1
    return found


def check_uses(calls: Sequence[Call], n_uses: Counter[int]) -> None:
    """Check that parameters of known modules are used by calls of such modules only.

    `n_uses` counts the operations in the graph that use each parameter, by its id.
    """
    n_calls = Counter(id(p) for call in calls if is_known(call.module) for p in _own(call.module))
    for call in calls:
        for own, parameter in call.module._parameters.items():
            if 0 < n_calls[id(parameter)] < n_uses[id(parameter)]:
                why = f"has a {own} that is also used outside it"
                raise refused(call.name, call.module, why)


def owners(calls: Sequence[Call]) -> dict[int, nn.Module]:
    """Parameters, by id, with the module of unknown kind whose calls compute with them.

    That is the module that holds them; if it is never called, it is the innermost called module
    around it, such as `MultiheadAttention`, which reads the weight of its output layer without
    calling that layer. Parameters of known modules that are called have no other owner.
    """
    called = {call.module: call.name for call in calls}
    known = {id(p) for module in called if is_known(module) for p in _own(module)}
    held = {id(p) for module in called for p in _own(module)}
    found: dict[int, nn.Module] = {}
    # Outer modules first, so that inner ones overwrite them.
    depths = {module: name.count(".") + bool(name) for module, name in called.items()}
    for module in sorted(called, key=lambda module: depths[module]):
        if not is_known(module):
            around = {id(p) for p in module.parameters()} - held
            found |= dict.fromkeys((around | {id(p) for p in _own(module)}) - known, module)
    return found


def _own(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module._parameters.values() if parameter is not None]
