"""The memory of a step that selects first: the part of the rows off its block."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from holdfast._typing import Rate
from holdfast.geometry import Block, ColumnRows, DenseRows, working_dtype
from holdfast.registry import Registry
from holdfast.robust_step._robust_step import Units, check_units


class Memory(ABC):
    """Carries the part of the rows that a step leaves out to later steps.

    Memories are immutable descriptions. The tensor that changes from step to step belongs to the
    step; it is called the state here, and None means zero.
    """

    name: ClassVar[str]
    """The short name, as in `"mean(units='gradient')"`."""

    n_state_dimensions: ClassVar[int]
    """Dimensions of the state: 1 for [d], 2 for [n, d], 0 for none."""

    @property
    @abstractmethod
    def needs_lr(self) -> bool:
        """Whether the learning rate must be known."""

    @abstractmethod
    def augment(self, rows: ColumnRows, state: Tensor | None, lr: Rate) -> ColumnRows:
        """The rows with the state added to each, in units of gradients."""

    @abstractmethod
    def retain(
        self, augmented: ColumnRows, counts: Tensor, block: Block, state: Tensor | None, lr: Rate
    ) -> Tensor | None:
        """The next state.

        Args:
            augmented: the rows that :meth:`~Memory.augment` returned.
            counts: [n] how many rows each counts as (float64, CPU); zero where it is not finite.
            block: the columns that are moved.
            state: the state until now; it is not changed.
            lr: the learning rate, above zero somewhere.
        """


memories: Registry[Memory] = Registry("memory")
"""Every memory by its short name: `memories.parse("mean(units='gradient')")`."""


class ResidualMemory(Memory):
    """A memory with a state in units of parameters or of gradients.

    The dataclass that implements it has the field `units`; see
    :class:`~holdfast.robust_step.RobustStep`.
    """

    units: Units

    def __post_init__(self) -> None:
        check_units(self.units)

    @property
    def needs_lr(self) -> bool:
        return self.units == "parameter"

    def augment(self, rows: ColumnRows, state: Tensor | None, lr: Rate) -> ColumnRows:
        if state is None:
            return rows
        added = state if self.units == "gradient" else _divided(state, lr)
        matrix = rows.matrix().to(working_dtype(rows.dtype))
        return DenseRows(matrix.add_(added), layout=rows.layout, holders=rows.holders)

    def _in_units(self, remainder: Tensor, block: Block, state: Tensor | None, lr: Rate) -> Tensor:
        """The remainder [..., d] of gradients, overwritten, off the block in units of the state."""
        block.tiling.clear(remainder, block.tiles.to(remainder.device))
        if self.units == "gradient":
            return remainder
        if isinstance(lr, float):
            return remainder.mul_(lr)
        # Where the rate is zero nothing was applied, so the memory stays.
        before = torch.zeros_like(remainder) if state is None else state
        return remainder.mul_(lr).where(lr > 0, before)


def _divided(state: Tensor, lr: Rate) -> Tensor:
    return state / lr if isinstance(lr, float) else (state / lr).where(lr > 0, 0.0)
