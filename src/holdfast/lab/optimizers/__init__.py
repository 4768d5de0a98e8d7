"""Optimizers as part of a configuration."""

from holdfast._registry import Registry
from holdfast.lab.optimizers._adam import Adam
from holdfast.lab.optimizers._descent import Descent
from holdfast.lab.optimizers._sgd import Sgd

__all__ = ["Adam", "Descent", "Sgd", "optimizers"]

optimizers: Registry[Descent] = Registry("optimizer", [Adam, Sgd])
"""Every optimizer by its short name: `optimizers.parse("sgd(lr=0.1, momentum=0.9)")`."""
