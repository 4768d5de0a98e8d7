"""Models by name: those of :mod:`holdfast.lab.models`, and functions of the user's."""

import importlib
import re
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.lab.models import GRAY, Architecture, Shape, initialized, models

__all__ = ["architecture", "is_own_model"]

_OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_own_model(name: str) -> bool:
    """Whether the name is that of a function, `"package.module:function"`."""
    return _OWN.fullmatch(name) is not None


def architecture(name: str) -> Architecture:
    """The architecture with this short name, or a function as `"package.module:function"`.

    Such a function is called without arguments and returns a module for images [b, C, H, W] of the
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
    try:
        build = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise failure("model", "be the name of a function that can be imported", error) from error

    def own(*, shape: Shape = GRAY, generator: torch.Generator | None = None) -> nn.Module:
        model = initialized(build, generator)
        if not isinstance(model, nn.Module):
            raise failure("model", "return a torch.nn.Module", type(model).__name__)
        _check_takes(model, shape)
        return model

    return own


def _check_takes(model: nn.Module, shape: Shape) -> None:
    """Refuse a module that does not turn a batch of images into one row of outputs each."""
    needed = f"take images [b, {', '.join(map(str, shape))}] and return [b, classes]"
    try:
        with torch.no_grad():
            outputs = model.eval()(torch.zeros(2, *shape))
    except (RuntimeError, ValueError, TypeError) as error:
        raise failure("model", needed, error) from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != 2:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise failure("model", needed, got)
    model.train()
