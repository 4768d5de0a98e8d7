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
    detached,
    map_tensors,
    tensors_of,
    versions_of,
)
from holdfast.sources.layers import Dimensions, RecordedNoise, is_known

NO_DIMENSION = "has a tensor without a separate dimension for the samples"
# The shapes of arguments, noise and outputs of a call.
Shapes = Sequence[tuple[torch.Size | None, ...]]
# By the name of the module and the number of its calls before.
ShapesOfCalls = dict[tuple[str, int], Shapes]


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
    model: nn.Module,
    n: int,
    with_one_more: ShapesOfCalls | None = None,
    *,
    nudged: bool = False,
) -> Iterator["RecordedPass"]:
    """Records every call, within the context, of a module that owns trainable parameters.

    Args:
        model: the model.
        n: the number of samples.
        with_one_more: the shapes in a pass with one more sample, which show the dimensions of the
            samples. Without it these are not looked for.
        nudged: change what is repeated for each sample, in the copy of the first sample.
    """
    recorded = RecordedPass(model, n, with_one_more, nudged)
    try:
        # In most models no module draws noise that must be repeated.
        with recorded.noise if recorded.unknown else nullcontext():
            yield recorded
    finally:
        for handle in recorded.handles:
            handle.remove()


class RecordedPass:
    """The calls of one forward pass, in their order, and the output of the model."""

    def __init__(
        self, model: nn.Module, n: int, with_one_more: ShapesOfCalls | None, nudged: bool
    ) -> None:
        self.calls: list[Call] = []
        self.output: Any = None
        self._nudged = nudged
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
        self.handles.append(model.register_forward_hook(self._finish))
        leave = self._leave
        self.handles += [m.register_forward_hook(leave, with_kwargs=True) for m in self._names]

    def _finish(self, _: nn.Module, __: Any, output: Any) -> None:
        self.output = output

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
        if dimensions:
            pairs = zip(noise, dimensions[1], strict=True)
            noise = [f if d is None else f.unflatten(d, (self._n, -1)) for f, d in pairs]
        # Mappings are left as they are, because map_tensors would turn subclasses into plain dicts.
        if isinstance(output, (Tensor, tuple, list)):
            output = map_tensors(without_view, output)
            if dimensions and _is_shared(dimensions):
                output = map_tensors(self._repeated, output)
        elif dimensions and _is_shared(dimensions):
            raise refused(name, module, NO_DIMENSION)
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

    def _repeated(self, tensor: Tensor) -> Tensor:
        copies = repeated(tensor, self._n).clone()
        if self._nudged:
            copies[0] += 1
        return copies

    def _dimensions(
        self, name: str, module: nn.Module, shapes: Sequence[tuple[torch.Size, ...]]
    ) -> list[Dimensions]:
        """The dimensions of the samples in arguments, noise and outputs."""
        if self._with_one_more is None:
            return []
        key = name, self._n_calls[name]
        self._n_calls[name] += 1
        # A model that chooses its modules at random may have left this one out.
        later = self._with_one_more.get(key, ())
        if [len(each) for each in later] != [len(each) for each in shapes]:
            later = [(None,) * len(each) for each in shapes]
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


def without_view(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of a view: an in-place operation on it rewrites its base's history."""
    return tensor.clone() if tensor._is_view() else tensor


def repeated(tensor: Tensor, n: int) -> Tensor:
    """[n, ...] a tensor that is the same for all samples; a first dimension of one is replaced."""
    one = tensor if tensor.shape[0] == 1 else tensor.unsqueeze(0)
    return one.expand(n, *one.shape[1:])


def owners(calls: Sequence[Call]) -> dict[int, nn.Module]:
    """Parameters, by id, with the module of unknown kind whose calls compute with them.

    That is the module that holds them; if it is never called, it is the innermost called module
    around it, such as `MultiheadAttention`, which reads the weight of its output layer without
    calling that layer. Parameters of known modules that are called have no other owner.
    """
    called = {call.module: call.name for call in calls}
    known = {id(p) for module in called if is_known(module) for p in own_parameters(module)}
    held = {id(p) for module in called for p in own_parameters(module)}
    found: dict[int, nn.Module] = {}
    # Outer modules first, so that inner ones overwrite them.
    depths = {module: name.count(".") + bool(name) for module, name in called.items()}
    for module in sorted(called, key=lambda module: depths[module]):
        if not is_known(module):
            around = {id(p) for p in module.parameters()} - held
            found |= dict.fromkeys(
                (around | {id(p) for p in own_parameters(module)}) - known, module
            )
    return found


def own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that a module holds itself."""
    return [parameter for parameter in module._parameters.values() if parameter is not None]
