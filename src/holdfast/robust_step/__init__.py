"""Steps: a rule with a block of columns and a memory, and the presets of BGMD."""

from holdfast.robust_step._deliver import Delivered, deliver
from holdfast.robust_step._mean_memory import MeanMemory
from holdfast.robust_step._memory import Memory, ResidualMemory, memories
from holdfast.robust_step._no_memory import NoMemory
from holdfast.robust_step._presets import bgmd, preset, presets
from holdfast.robust_step._robust_step import RobustStep, Units
from holdfast.robust_step._row_memory import RowMemory
from holdfast.robust_step._select_first_step import SelectFirstStep
from holdfast.robust_step._step import Step
from holdfast.robust_step._step_result import StepResult
from holdfast.robust_step._step_state import check_carried

__all__ = [
    "Delivered",
    "MeanMemory",
    "Memory",
    "NoMemory",
    "ResidualMemory",
    "RobustStep",
    "RowMemory",
    "SelectFirstStep",
    "Step",
    "StepResult",
    "Units",
    "bgmd",
    "check_carried",
    "deliver",
    "memories",
    "preset",
    "presets",
]
