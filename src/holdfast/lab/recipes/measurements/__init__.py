"""Measurements without training: times, breakdown points, pictures."""

from holdfast._registry import Registry
from holdfast.lab.recipes.measurements._block_speed_up import BlockSpeedUp
from holdfast.lab.recipes.measurements._breakdown_point import BreakdownPoint
from holdfast.lab.recipes.measurements._corrupted_images import CorruptedImages
from holdfast.lab.recipes.measurements._measurement import Measurement
from holdfast.lab.recipes.measurements._rule_time import RuleTime
from holdfast.lab.recipes.measurements._toy_median import ToyMedian

__all__ = ["BlockSpeedUp", "BreakdownPoint", "CorruptedImages", "Measurement", "RuleTime", "ToyMedian", "measurements"]

measurements: Registry[Measurement] = Registry(
    "measurement", [BlockSpeedUp, BreakdownPoint, CorruptedImages, RuleTime, ToyMedian]
)
"""Every measurement by its short name."""
