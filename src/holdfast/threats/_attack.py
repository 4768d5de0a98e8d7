"""What every attack is: a change of some rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, overload

import torch
from torch import Tensor

from holdfast.checks import check_generator, check_mask, failure
from holdfast.geometry import DenseRows
from holdfast.threats._attack_context import AttackContext, State


class Attack(ABC):
    """What bad rows send in place of their gradient.

    Attacks are immutable, leave the honest rows as they are, bit for bit, and never change their input. Their attackers know all rows of
    the step and act together. A value beyond the range of the rows' dtype is sent as the largest that it has.
    """

    name: ClassVar[str]
    """The short name, as in `"scaled-flip(factor=100.0)"`."""

    aim: ClassVar[str]
    """Which figure the attack moves, in one sentence."""

    looks_at_honest: ClassVar[bool] = False
    """Whether the bad rows are made from the honest ones, so that there must be some."""

    takes_state: ClassVar[bool] = False
    """Whether the attackers carry something from step to step."""

    saturates: ClassVar[bool] = True
    """Whether values beyond the dtype's range are sent as its largest; otherwise they are sent as they are."""

    @property
    def needs_generator(self) -> bool:
        """Whether a call draws random numbers."""
        return False

    @overload
    def __call__(
        self,
        rows: Tensor,
        mask: Tensor,
        *,
        generator: torch.Generator | None = None,
        state: State = None,
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        rows: DenseRows,
        mask: Tensor,
        *,
        generator: torch.Generator | None = None,
        state: State = None,
    ) -> DenseRows: ...
    @overload
    def __call__(
        self,
        rows: Sequence[Tensor],
        mask: Tensor,
        *,
        generator: torch.Generator | None = None,
        state: State = None,
    ) -> list[Tensor]: ...
    def __call__(
        self,
        rows: Any,
        mask: Tensor,
        *,
        generator: torch.Generator | None = None,
        state: State = None,
    ) -> Any:
        """The rows as they arrive, of the kind that came: the honest ones as they were, the others as the attack makes them.

        Args:
            rows: [n, d] tensor, list of [n, ...] tensors, or :class:`~holdfast.geometry.DenseRows`, before the attack.
            mask: bool [n], True where a row is bad.
            generator: source of random numbers, on the rows' device or the CPU; for attacks that need one.
            state: what :meth:`learn` returned at the step before; None at the first.
        """
        self._check(rows, mask, state)
        sent = (
            rows.detach().clone() if isinstance(rows, Tensor) else _matrix(rows)
        )  # of other kinds it is a copy already
        self._put(sent, mask, generator, state)
        return _in_kind(sent, rows)

    def overwrite(
        self,
        rows: Tensor,
        mask: Tensor,
        *,
        generator: torch.Generator | None = None,
        state: State = None,
    ) -> None:
        """The same in the rows' own memory, for a tensor [n, d] that nobody needs as it was: a copy of all rows costs as much as a rule.

        Other arguments as in a call. Attackers that carry something must :meth:`learn` before.
        """
        if not isinstance(rows, Tensor) or rows.ndim != 2:
            raise failure("rows", "be a tensor [n, d]", type(rows).__name__)
        self._check(rows, mask, state)
        self._put(rows.detach(), mask, generator, state)

    def _put(
        self, rows: Tensor, mask: Tensor, generator: torch.Generator | None, state: State
    ) -> None:
        """Write what the bad rows send over what they are."""
        if self.needs_generator:
            check_generator(generator)
        context = AttackContext(
            rows=rows, mask=mask.to(rows.device), generator=generator, state=state
        )
        if context.n_bad == 0:
            return
        rows[context.mask] = self._bad_rows(context).to(rows.dtype)
        if self.saturates:  # in place, row by row: fresh memory costs more than all the rest
            for i in context.mask.nonzero()[:, 0].tolist():
                rows[i].clamp_(torch.finfo(rows.dtype).min, torch.finfo(rows.dtype).max)

    def learn(
        self, rows: Tensor | DenseRows | Sequence[Tensor], mask: Tensor, state: State = None
    ) -> State:
        """What the attackers carry to the next step; None for attacks that keep nothing.

        Call it once a step with the rows as they were before the attack, and give the attack the state of the step before.
        """
        self._check(rows, mask, state)
        if not self.takes_state:
            return None
        matrix = _matrix(rows)
        return self._learn(
            AttackContext(rows=matrix, mask=mask.to(matrix.device), generator=None, state=state)
        )

    @abstractmethod
    def _bad_rows(self, context: AttackContext) -> Tensor:
        """[n_bad, d] (or [d], if all are equal) what the bad rows send; called only if there are any."""

    def _learn(self, context: AttackContext) -> State:
        return None

    def _check(self, rows: Any, mask: Tensor, state: State) -> None:
        check_mask(mask, (rows if isinstance(rows, DenseRows) else DenseRows(rows)).n)
        if self.looks_at_honest and bool(mask.all()):
            raise failure("mask", f"leave at least one honest row (needed by {self!r})", "none")
        if state is not None and not self.takes_state:
            raise failure(
                "state", f"be left out, because {self!r} keeps none", type(state).__name__
            )


def check_state(state: State, shape: tuple[int, ...]) -> None:
    """No state, or a dense floating tensor of this shape."""
    if state is None:
        return
    if not isinstance(state, Tensor) or not state.is_floating_point():
        raise failure(
            "state",
            "be a floating tensor",
            state.dtype if isinstance(state, Tensor) else type(state).__name__,
        )
    if state.shape != shape:
        raise failure("state", f"have shape {shape}", tuple(state.shape))


def _matrix(rows: Any) -> Tensor:
    """[n, d] the rows side by side: a tensor as it is, other kinds as a copy."""
    if isinstance(rows, Tensor):
        return rows.detach()
    return (rows if isinstance(rows, DenseRows) else DenseRows(rows)).matrix()


def _in_kind(matrix: Tensor, rows: Any) -> Any:
    """The matrix [n, d] as the kind of rows that came."""
    if isinstance(rows, Tensor):
        return matrix
    if isinstance(rows, DenseRows):
        parts = (
            matrix
            if rows.layout is not None
            else list(torch.split(matrix, list(rows.sections), dim=1))
        )
        return DenseRows(parts, layout=rows.layout)
    pieces = torch.split(matrix, [tensor[0].numel() for tensor in rows], dim=1)
    return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, rows, strict=True)]
