"""What a step carries over to the next: the part of the rows that its block left out."""

from holdfast.memory._augmented_rows import AugmentedRows
from holdfast.memory._mean_memory import MeanMemory
from holdfast.memory._memory import Memory, ResidualMemory, Units
from holdfast.memory._no_memory import NoMemory
from holdfast.memory._robust_memory import RobustMemory
from holdfast.memory._row_memory import RowMemory
from holdfast.registry import Registry

__all__ = [
    "AugmentedRows",
    "MeanMemory",
    "Memory",
    "NoMemory",
    "ResidualMemory",
    "RobustMemory",
    "RowMemory",
    "Units",
    "memories",
]

memories: Registry[Memory] = Registry("memory", [MeanMemory, NoMemory, RobustMemory, RowMemory])
"""Every memory by its short name: `memories.parse("robust(units='gradient')")`."""
