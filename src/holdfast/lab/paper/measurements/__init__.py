"""Measurements without training: times, breakdown points, pictures."""

from holdfast.lab.paper.measurements._illustrations import CorruptedImages, ToyMedian
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.lab.paper.measurements._rules import BlockSpeedUp, BreakdownPoint, RuleTime
from holdfast.registry import Registry

__all__ = [
    "BlockSpeedUp",
    "BreakdownPoint",
    "CorruptedImages",
    "Measurement",
    "RuleTime",
    "ToyMedian",
    "measurements",
]

measurements: Registry[Measurement] = Registry(
    "measurement", [BlockSpeedUp, BreakdownPoint, CorruptedImages, RuleTime, ToyMedian]
)
"""Every measurement by its short name."""
