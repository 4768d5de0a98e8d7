import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Generator, Tensor

from holdfast.checks import check_generator, check_mask, failure
from holdfast.geometry import DenseRows, working_dtype

R = TypeVar("R", Tensor, DenseRows, Sequence[Tensor])

State = Tensor | None
"""What attackers carry from one step to the next."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackContext:
    """What the attackers know at one step: rows [n, d] before the attack, `mask` [n], and state.

    Honest rows are divided by `unit`, a power of two near their largest entry: their squares do not
    overflow in any dtype, and the scaling is exact.
    """

    rows: Tensor
    mask: Tensor
    generator: Generator | None
    state: State

    @cached_property
    def n_bad(self) -> int:
        """Number of bad rows."""
        return int(self.mask.sum())

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.rows.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype for computing: float32, or float64 for rows of float64."""
        return working_dtype(self.rows.dtype)

    @property
    def own(self) -> Tensor:
        """[n_bad, d] copy of the bad rows before the attack, in the dtype of the rows."""
        return self.rows[self.mask]

    @cached_property
    def unit(self) -> float:
        """A power of two, at most the largest finite entry of the honest rows; 1 if all are 0."""
        entries = self.rows[~self.mask].abs()
        largest = float(entries.where(entries.isfinite(), 0.0).max())
        smallest = torch.finfo(self.dtype).tiny
        return max(smallest, math.ldexp(1.0, math.frexp(largest)[1] - 1)) if largest > 0 else 1.0

    @cached_property
    def honest(self) -> Tensor:
        """[n_honest, d] honest rows divided by `unit`, in `dtype`."""
        return self.rows[~self.mask].to(self.dtype) / self.unit

    @cached_property
    def mean(self) -> Tensor:
        """[d] mean of `honest`."""
        return self.honest.mean(0)

    @cached_property
    def spread(self) -> Tensor:
        """[d] standard deviation (over n - 1) of `honest` per column; zero for a single row."""
        return self.honest.std(0) if len(self.honest) > 1 else torch.zeros_like(self.mean)

    def normal(self) -> Tensor:
        """[n_bad, d] independent standard normal numbers."""
        return standard_normal((self.n_bad, self.d), self.generator, self.rows)

    def check_state(self, *shape: int) -> None:
        """Refuse a state that is not a floating tensor of this shape; None is accepted."""
        if self.state is None:
            return
        if not isinstance(self.state, Tensor) or not self.state.is_floating_point():
            got = getattr(self.state, "dtype", type(self.state).__name__)
            raise failure("state", "be a floating tensor", got)
        if self.state.shape != shape:
            raise failure("state", f"have shape {shape}", tuple(self.state.shape))


class Attack(ABC):
    """What bad rows send in place of their gradients.

    Attacks are immutable and never change their input; honest rows are returned equal to the bit.
    The attackers know all rows of the step and cooperate. Values beyond the range of the rows'
    dtype are sent as its largest value.
    """

    name: ClassVar[str]
    """The name in texts such as `"scaled-flip(factor=100.0)"`."""

    aim: ClassVar[str]
    """The quantity that the attack changes, in one sentence."""

    looks_at_honest: ClassVar[bool] = False
    """Whether bad rows are made from honest rows; then one is needed."""

    takes_state: ClassVar[bool] = False
    """Whether the attackers carry a state from step to step."""

    saturates: ClassVar[bool] = True
    """Whether values beyond the range of the dtype are sent as its largest value."""

    @property
    def needs_generator(self) -> bool:
        """Whether a call draws random numbers."""
        return False

    def __call__(
        self, rows: R, mask: Tensor, *, generator: Generator | None = None, state: State = None
    ) -> R:
        """The rows after the attack, of the same kind as `rows`.

        Args:
            rows: tensor [n, d], list of tensors [n, ...], or DenseRows, before the attack.
            mask: bool [n], True where a row is bad.
            generator: for attacks that need one, on the rows' device or the CPU.
            state: result of :meth:`learn` at the previous step; None at the first.
        """
        self._check(rows, mask, state)
        # `_matrix` copies all kinds but tensors.
        sent = rows.detach().clone() if isinstance(rows, Tensor) else _matrix(rows)
        self._replace(sent, mask, generator, state)
        in_kind: R = _in_kind(sent, rows)
        return in_kind

    def overwrite(
        self, rows: Tensor, mask: Tensor, *, generator: Generator | None = None, state: State = None
    ) -> None:
        """Attack a tensor [n, d] in place, which saves a copy of all rows.

        If the attack takes a state, call :meth:`learn` before.
        """
        if not isinstance(rows, Tensor) or rows.ndim != 2:
            raise failure("rows", "be a tensor [n, d]", type(rows).__name__)
        self._check(rows, mask, state)
        self._replace(rows.detach(), mask, generator, state)

    def learn(
        self, rows: Tensor | DenseRows | Sequence[Tensor], mask: Tensor, state: State = None
    ) -> State:
        """The state for the next step; None if the attack keeps none.

        Call it once per step with the rows *before* the attack and the state of the previous step.
        """
        self._check(rows, mask, state)
        if not self.takes_state:
            return None
        matrix = _matrix(rows)
        mask = mask.to(matrix.device)
        return self._learn(AttackContext(rows=matrix, mask=mask, generator=None, state=state))

    @abstractmethod
    def _bad_rows(self, context: AttackContext) -> Tensor:
        """What bad rows send: [n_bad, d], or [d] if all are equal. Called only if there are any."""

    def _learn(self, context: AttackContext) -> State:
        return None

    def _replace(
        self, rows: Tensor, mask: Tensor, generator: Generator | None, state: State
    ) -> None:
        """Overwrite the bad rows of the matrix [n, d]."""
        if self.needs_generator:
            check_generator(generator)
        mask = mask.to(rows.device)
        context = AttackContext(rows=rows, mask=mask, generator=generator, state=state)
        if context.n_bad == 0:
            return
        rows[mask] = self._bad_rows(context).to(rows.dtype)
        if self.saturates:
            limits = torch.finfo(rows.dtype)
            # In place, row by row: fresh memory costs more than all the rest.
            for i in mask.nonzero()[:, 0].tolist():
                rows[i].clamp_(limits.min, limits.max)

    def _check(self, rows: Any, mask: Tensor, state: State) -> None:
        check_mask(mask, (rows if isinstance(rows, DenseRows) else DenseRows(rows)).n)
        if self.looks_at_honest and bool(mask.all()):
            raise failure("mask", f"leave at least one honest row (needed by {self!r})", "none")
        if state is not None and not self.takes_state:
            raise failure("state", f"be None for {self!r}", type(state).__name__)


def _matrix(rows: Any) -> Tensor:
    """[n, d] the rows as one matrix: a tensor itself, a copy of other kinds."""
    if isinstance(rows, Tensor):
        return rows.detach()
    return (rows if isinstance(rows, DenseRows) else DenseRows(rows)).matrix()


def _in_kind(matrix: Tensor, rows: Any) -> Any:
    """The matrix [n, d] in the kind of `rows`."""
    if isinstance(rows, Tensor):
        return matrix
    if isinstance(rows, DenseRows):
        parts = list(torch.split(matrix, list(rows.sections), dim=1))
        return DenseRows(parts if rows.layout is None else matrix, layout=rows.layout)
    pieces = torch.split(matrix, [tensor[0].numel() for tensor in rows], dim=1)
    return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, rows, strict=True)]


def of_length_one(vector: Tensor) -> Tensor:
    """The vector scaled to length 1; a zero vector is returned as it is."""
    length = float(torch.linalg.vector_norm(vector))
    return vector / length if length > 0 else vector


def standard_normal(shape: tuple[int, ...], generator: Generator | None, like: Tensor) -> Tensor:
    """Independent standard normal numbers in the working dtype of `like`, on its device."""
    assert generator is not None
    dtype = working_dtype(like.dtype)
    drawn = torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)
    return drawn.to(like.device)


def uniform(shape: tuple[int, ...], generator: Generator | None, like: Tensor) -> Tensor:
    """Independent numbers, uniform in [0, 1), on the device of `like`."""
    assert generator is not None
    return torch.rand(shape, generator=generator, device=generator.device).to(like.device)
