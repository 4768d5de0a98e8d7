"""The lab, where data sets, models and experiments live."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.lab.config import Config, Threat
    from holdfast.lab.training import resume, run, trained_model

__all__ = ["Config", "Threat", "resume", "run", "trained_model"]


# Names are loaded on first use: torch takes seconds to load, and `holdfast --help` needs none.
_HOMES = {
    "Config": "holdfast.lab.config",
    "Threat": "holdfast.lab.config",
    "resume": "holdfast.lab.training",
    "run": "holdfast.lab.training",
    "trained_model": "holdfast.lab.training",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
