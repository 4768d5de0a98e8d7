"""Measurements without training: times, breakdown points, pictures."""

from holdfast.lab.paper.measurements._illustrations import CorruptedImages, ToyMedian
from holdfast.lab.paper.measurements._measurement import Measurement, measurements
from holdfast.lab.paper.measurements._rules import BlockSpeedUp, BreakdownPoint, RuleTime

__all__ = [
    "BlockSpeedUp",
    "BreakdownPoint",
    "CorruptedImages",
    "Measurement",
    "RuleTime",
    "ToyMedian",
    "measurements",
]
