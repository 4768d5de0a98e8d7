"""Optimizers as part of a configuration."""

from holdfast.lab.optimizers._adam import Adam
from holdfast.lab.optimizers._optimizer_spec import OptimizerSpec
from holdfast.lab.optimizers._sgd import Sgd
from holdfast.registry import Registry

__all__ = ["Adam", "OptimizerSpec", "Sgd", "optimizers"]

optimizers: Registry[OptimizerSpec] = Registry("optimizer", [Adam, Sgd])
"""Every optimizer by its short name: `optimizers.parse("sgd(lr=0.1, momentum=0.9)")`."""
