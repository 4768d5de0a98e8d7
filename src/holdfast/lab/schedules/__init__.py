"""How the learning rate changes as training goes on."""

from holdfast.lab.schedules._constant import Constant
from holdfast.lab.schedules._cosine import Cosine
from holdfast.lab.schedules._cosine_restarts import CosineRestarts
from holdfast.lab.schedules._exponential import Exponential
from holdfast.lab.schedules._schedule import Schedule
from holdfast.registry import Registry

__all__ = ["Constant", "Cosine", "CosineRestarts", "Exponential", "Schedule", "schedules"]

schedules: Registry[Schedule] = Registry(
    "schedule", [Constant, Cosine, CosineRestarts, Exponential]
)
"""Every schedule by its short name: `schedules.parse("exponential(decay=0.99)")`."""
