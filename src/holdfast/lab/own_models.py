"""Models by name: those of :mod:`holdfast.lab.models`, and functions of the user's."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.lab.models import GRAY, Architecture, Shape, initialized, models
from holdfast.registry import suggestion

__all__ = ["architecture", "is_own_model"]

_OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_own_model(name: str) -> bool:
    """Whether the name is that of a function, `"package.module:function"`."""
    return _OWN.fullmatch(name) is not None


def architecture(name: str) -> Architecture:
    """The architecture with this short name, or a function as `"package.module:function"`.

    Such a function is called without arguments and returns a module for samples [b, ...] of the
    data set, with one output per class. Its layers are initialized from the run's seed. Modules are
    found as Python finds them, and in the working directory.

    Example:
        >>> architecture("mlp") is models["mlp"]
        True
    """
    if not is_own_model(name):
        return models[name]
    module, function = name.split(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # the command does not search it
    build = _imported(module, function)

    def own(
        *, shape: Shape = GRAY, n_classes: int = 10, generator: torch.Generator | None = None
    ) -> nn.Module:
        try:
            model = initialized(build, generator)
        except Exception as error:  # of any kind: it is the user's code
            called = f"{type(error).__name__} ({error})"
            raise failure("model", f"be built by {name}() without arguments", called) from error
        if not isinstance(model, nn.Module):
            raise failure("model", f"be a torch.nn.Module, returned by {name}", _a(model))
        _check_takes(model, name, shape, n_classes)
        return model

    return own


def _imported(module: str, function: str) -> Callable[[], nn.Module]:
    """The user's function."""
    try:
        found = importlib.import_module(module)
    except Exception as error:  # of any kind: it is the user's code
        got = f"{type(error).__name__} ({error})"
        raise failure("model", f"name a module that can be imported ({module})", got) from error
    names = [name for name, value in vars(found).items() if callable(value)]
    if function not in names:
        got = f"{function!r}{suggestion(function, names)}"
        raise failure("model", f"name a function of {found.__file__}", got)
    build: Callable[[], nn.Module] = getattr(found, function)
    return build


def _check_takes(model: nn.Module, name: str, shape: Shape, n_classes: int) -> None:
    """Refuse a module that does not turn a batch of samples into one row of scores each."""
    sizes = ", ".join(map(str, shape))
    needed = f"take samples [b, {sizes}] and return [b, {n_classes}], a score per class"
    try:
        with torch.no_grad():
            outputs = model.eval()(torch.zeros(2, *shape))
    except Exception as error:  # of any kind: it is the user's code
        reason = str(error).partition("\n")[0]
        raise failure("model", needed, f"{type(error).__name__} of {name} ({reason})") from error
    if not isinstance(outputs, Tensor) or outputs.shape != (2, n_classes):
        raise failure("model", needed, f"{_a(outputs)} of {name} for two samples")
    model.train()


def _a(value: object) -> str:
    return f"{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
