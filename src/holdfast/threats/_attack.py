from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

import torch
from torch import Generator, Tensor

from holdfast.aggregators import rules
from holdfast.checks import check_count, check_generator, check_mask, check_vector, failure
from holdfast.geometry import DenseRows
from holdfast.registry import Registry
from holdfast.threats._attack_context import AttackContext, Rule, State

R = TypeVar("R", Tensor, DenseRows, Sequence[Tensor])

NOTHING: frozenset[str] = frozenset()
GENERATOR = frozenset({"generator"})
RULE = frozenset({"rule"})


class Knowledge(TypedDict, total=False):
    """Keyword arguments of every call of an attack: what attackers may know."""

    generator: Generator | None
    rule: Rule | str | None
    rule_arguments: Mapping[str, Any]
    memory: Tensor | None
    directions: Mapping[str, Tensor]
    sections: Sequence[int] | None
    step: int


class Attack(ABC):
    """Replaces the bad rows.

    Attacks are immutable and never change their input; honest rows are returned bitwise unchanged.
    The attackers know all rows of the step and cooperate. Values beyond the range of the rows'
    dtype are replaced by its largest value.
    """

    name: ClassVar[str]
    """The name in texts such as `"scaled-flip(factor=100.0)"`."""

    aim: ClassVar[str]
    """The quantity that the attack changes, in one sentence."""

    @property
    def looks_at_honest(self) -> bool:
        """Whether bad rows are made from honest rows; then one is needed."""
        return False

    @property
    def takes_state(self) -> bool:
        """Whether the attackers carry a state from step to step."""
        return False

    @property
    def saturates(self) -> bool:
        """Whether values beyond the range of the dtype are sent as its largest value."""
        return True

    @property
    def needs(self) -> frozenset[str]:
        """Those of `generator`, `rule` and `memory` that every call must pass."""
        return NOTHING

    @property
    def needs_directions(self) -> frozenset[str]:
        """Names of the directions that every call must pass."""
        return NOTHING

    def __call__(
        self, rows: R, mask: Tensor, *, state: State = None, **known: Unpack[Knowledge]
    ) -> R:
        """The rows after the attack, of the same kind as `rows`.

        A call may pass more than the attack `needs`; the attack ignores the rest.

        Args:
            rows: tensor [n, d], list of tensors [n, ...], or DenseRows, before the attack.
            mask: bool [n], True where a row is bad.
            state: result of :meth:`learn` at the previous step; None at the first.
            **known: any of the following.

                - `generator`: source of random numbers, on the rows' device or the CPU.
                - `rule`: the rule that will be applied to the rows: an Aggregator, its name, or any
                  function from rows [n, d] to a direction [d].
                - `rule_arguments`: the keyword arguments of that rule.
                - `memory`: [d] what the step will add to every row (its memory divided by the
                  learning rate).
                - `directions`: vectors [d] by name, which only a trainer can compute.
                - `sections`: numbers of adjacent columns that belong to one parameter each, which
                  decide the tiles of a blockwise rule. Lists of tensors and DenseRows have their
                  own; the columns of a tensor are one parameter by default.
                - `step`: number of the step, from 0.
        """
        known = self._check(rows, mask, state, known)
        # `_matrix` copies all kinds but tensors.
        sent = rows.detach().clone() if isinstance(rows, Tensor) else _matrix(rows)
        self._replace(self._context(sent, mask, state, known))
        in_kind: R = _in_kind(sent, rows)
        return in_kind

    def overwrite(
        self, rows: Tensor, mask: Tensor, *, state: State = None, **known: Unpack[Knowledge]
    ) -> State:
        """Attack a tensor [n, d] in place, which saves a copy of all rows.

        Returns what :meth:`learn` would have returned before the call. Arguments as in a call.
        """
        if not isinstance(rows, Tensor) or rows.ndim != 2:
            raise failure("rows", "be a tensor [n, d]", type(rows).__name__)
        known = self._check(rows, mask, state, known)
        context = self._context(rows.detach(), mask, state, known)
        # The attackers learn from the rows before they overwrite them.
        learned = self._learn(context) if self.takes_state else None
        self._replace(context)
        return learned

    def learn(
        self,
        rows: Tensor | DenseRows | Sequence[Tensor],
        mask: Tensor,
        state: State = None,
        **known: Unpack[Knowledge],
    ) -> State:
        """The state for the next step; None if the attack keeps none.

        Call it once per step with the rows *before* the attack and the state of the previous step.
        Further arguments as in a call.
        """
        if not self.takes_state:
            self._check_rows(rows, mask, state)
            return None
        known = self._check(rows, mask, state, known)
        return self._learn(self._context(_matrix(rows), mask, state, known))

    @abstractmethod
    def _bad_rows(self, context: AttackContext) -> Tensor:
        """The bad rows: [n_bad, d], or [d] if all are equal. Called only if there are any."""

    def _learn(self, context: AttackContext) -> State:
        """The state for the next step, from the rows before the attack."""
        return None

    def _replace(self, context: AttackContext) -> None:
        """Overwrite the bad rows of `context.rows`."""
        if context.n_bad == 0:
            return
        rows, mask = context.rows, context.mask
        rows[mask] = self._bad_rows(context).to(rows.dtype)
        if self.saturates:
            limits = torch.finfo(rows.dtype)
            # In place, row by row: fresh memory costs more than all the rest.
            for i in mask.nonzero()[:, 0].tolist():
                rows[i].clamp_(limits.min, limits.max)

    def _context(self, rows: Tensor, mask: Tensor, state: State, known: Knowledge) -> AttackContext:
        rule = known.get("rule")
        parsed = rules.parse(rule) if isinstance(rule, str) else rule
        given: dict[str, Any] = {**known, "rule": parsed}
        return AttackContext(rows=rows, mask=mask.to(rows.device), state=state, **given)

    def _check_rows(self, rows: Any, mask: Tensor, state: State) -> DenseRows:
        checked = rows if isinstance(rows, DenseRows) else DenseRows(rows)
        check_mask(mask, checked.n)
        if self.looks_at_honest and bool(mask.all()):
            raise failure("mask", f"leave at least one honest row (needed by {self!r})", "none")
        if state is not None and not self.takes_state:
            raise failure("state", f"be None for {self!r}", type(state).__name__)
        return checked

    def _check(self, rows: Any, mask: Tensor, state: State, known: Knowledge) -> Knowledge:
        """Check all arguments; return what is known, with the sections of the rows."""
        checked = self._check_rows(rows, mask, state)
        d = checked.d
        if "generator" in self.needs:
            check_generator(known.get("generator"))
        for name in sorted(self.needs):
            if known.get(name) is None:
                raise failure(name, f"be given to {self!r}", None)
        rule, memory = known.get("rule"), known.get("memory")
        if not (rule is None or isinstance(rule, str) or callable(rule)):
            raise failure("rule", "be a rule, its name or a function of rows", type(rule).__name__)
        if memory is not None:
            check_vector("memory", memory, d)
        check_count("step", known.get("step", 0))
        directions = known.get("directions", {})
        for name in sorted(self.needs_directions - set(directions)):
            got = ", ".join(map(repr, directions)) or "no directions"
            raise failure("directions", f"hold {name!r} (needed by {self!r})", got)
        for name, direction in directions.items():
            check_vector(f"directions[{name!r}]", direction, d)
        sections = known.get("sections")
        if sections is not None:
            check_sections(sections, d)
        return {**known, "sections": checked.sections if sections is None else sections}


attacks: Registry[Attack] = Registry("attack", inner="attack")
"""All attacks by name: `attacks.parse("scaled-flip(factor=5.0)")`."""


def check_sections(sections: Any, d: int) -> None:
    """Check for numbers of columns that add up to d."""
    for size in sections:
        check_count("sections", size, at_least=1)
    if sum(sections) != d:
        raise failure("sections", f"add up to {d}, the number of columns", sum(sections))


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
