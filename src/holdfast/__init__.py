"""Holdfast trains PyTorch models through corrupted gradients."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.layout import Layout
    from holdfast.robust_step import RobustStep, SelectFirstStep, StepResult, bgmd, preset

__version__ = "0.2.0"

__all__ = ["Layout", "RobustStep", "SelectFirstStep", "StepResult", "bgmd", "preset"]


# Names are loaded on first use: torch takes seconds to load, and `holdfast --help` needs none.
_HOMES = {
    "Layout": "holdfast.layout",
    "RobustStep": "holdfast.robust_step",
    "SelectFirstStep": "holdfast.robust_step",
    "StepResult": "holdfast.robust_step",
    "bgmd": "holdfast.robust_step",
    "preset": "holdfast.robust_step",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
