"""Holdfast trains PyTorch models through corrupted gradients."""

from holdfast.layout import Layout
from holdfast.robust_step import RobustStep, SketchedGeometricMedian, StepResult, bgmd, preset

__version__ = "0.1.0"

__all__ = ["Layout", "RobustStep", "SketchedGeometricMedian", "StepResult", "bgmd", "preset"]
