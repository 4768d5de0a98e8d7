"""What every memory is: how the part of a step that was not sent is carried to the next."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.geometry import Block, Rows
from holdfast.memory._augmented_rows import AugmentedRows

Units = Literal["parameter", "gradient"]


class Memory(ABC):
    """Carries what a step leaves out to the steps that follow.

    Memories are immutable descriptions; the tensor that changes from step to step belongs to the robust step. It is called the
    state here, and None stands for zero.
    """

    name: ClassVar[str]
    """The short name, as in `"robust(units='gradient')"`."""

    follows_weights: ClassVar[bool] = False
    """Whether the state is made with the weights of the rows, which must then speak of whole rows, not of the block alone."""

    n_state_dimensions: ClassVar[int]
    """Dimensions of the state: 1 for [d], 2 for [n, d], 0 for none."""

    @property
    @abstractmethod
    def needs_lr(self) -> bool:
        """Whether the learning rate must be known."""

    @abstractmethod
    def augment(
        self,
        rows: Rows,
        state: Tensor | None,
        lr: float | Tensor,
        row_weights: Tensor | None = None,
    ) -> AugmentedRows:
        """The rows, which count by `row_weights`, with the state added to each, in units of gradients."""

    @abstractmethod
    def retain(
        self,
        augmented: AugmentedRows,
        block: Block,
        state: Tensor | None,
        lr: float | Tensor,
        total: Tensor | None,
    ) -> Tensor | None:
        """The next state.

        Args:
            augmented: what :meth:`augment` returned.
            block: the columns that are sent.
            state: the state until now; it is not changed.
            lr: the learning rate, above zero somewhere.
            total: [d] the weighted sum of the augmented rows, if `follows_weights`; it may be overwritten.
        """


class ResidualMemory(Memory):
    """A memory with a state in units of parameters or of gradients.

    The dataclass that implements it has the field `units`. A state in units of parameters is what plain SGD still owes the
    parameters; it stays right when the learning rate changes. In units of gradients it is what the directions still owe, and the
    learning rate plays no part.
    """

    units: Units

    def __post_init__(self) -> None:
        if self.units not in ("parameter", "gradient"):
            raise failure("units", "be 'parameter' or 'gradient'", repr(self.units))

    @property
    def needs_lr(self) -> bool:
        return self.units == "parameter"

    def augment(
        self,
        rows: Rows,
        state: Tensor | None,
        lr: float | Tensor,
        row_weights: Tensor | None = None,
    ) -> AugmentedRows:
        if state is None or self.units == "gradient":
            return AugmentedRows(rows, state, row_weights=row_weights)
        if isinstance(lr, float):
            return AugmentedRows(rows, state, 1.0 / lr, row_weights)
        return AugmentedRows(rows, (state / lr).where(lr > 0, 0.0), row_weights=row_weights)

    def _in_units(
        self, remainder: Tensor, block: Block, state: Tensor | None, lr: float | Tensor
    ) -> Tensor:
        """The remainder ([d] or [n, d], in units of gradients, may be overwritten) without the block, in units of the state."""
        block.tiling.clear(remainder, block.tiles.to(remainder.device))
        if self.units == "gradient":
            return remainder
        if isinstance(lr, float):
            return remainder.mul_(lr)
        # Where the learning rate is zero nothing was sent and nothing is owed for this step: what was owed before still is.
        return remainder.mul_(lr).where(
            lr > 0, torch.zeros_like(remainder) if state is None else state
        )
