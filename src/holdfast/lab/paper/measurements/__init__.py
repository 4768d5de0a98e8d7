"""Measurements without training: times, breakdown points, pictures."""

from holdfast.lab.paper.measurements._block_speed_up import BlockSpeedUp
from holdfast.lab.paper.measurements._breakdown_point import BreakdownPoint
from holdfast.lab.paper.measurements._corrupted_images import CorruptedImages
from holdfast.lab.paper.measurements._measurement import Measurement
from holdfast.lab.paper.measurements._rule_time import RuleTime
from holdfast.lab.paper.measurements._toy_median import ToyMedian
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
