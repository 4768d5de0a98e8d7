"""The robust step: a rule with a block of columns and a memory around it, and the presets that are BGMD."""

from holdfast.robust_step._presets import bgmd, preset, presets
from holdfast.robust_step._robust_step import RobustStep
from holdfast.robust_step._sketched_geometric_median import SketchedGeometricMedian
from holdfast.robust_step._sketched_rows import SketchedRows, importance_weighted
from holdfast.robust_step._step_result import StepResult

__all__ = [
    "RobustStep",
    "SketchedGeometricMedian",
    "SketchedRows",
    "StepResult",
    "bgmd",
    "importance_weighted",
    "preset",
    "presets",
]
