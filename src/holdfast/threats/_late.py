from dataclasses import dataclass
from typing import final

from torch import Tensor

from holdfast.checks import check_count, check_instance
from holdfast.threats._attack import Attack, attacks
from holdfast.threats._attack_context import AttackContext, State


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class Late(Attack):
    """Sends honest rows at first, then those of another attack.

    Bad workers send their own gradients before the step `start`, and the rows of `attack` from then
    on. Rules and monitors that learn whom to trust get only honest rows until then.

    Args:
        start: number of the first step with the attack; steps are counted from 0.
        attack: the attack, or its name.

    Reference: none; designed against defenses that learn whom to trust.

    Example:
        >>> attack = attacks.parse("late(start=50) | scaled-flip(factor=1.0)")
        >>> rows, mask = torch.tensor([[1.0], [3.0]]), torch.tensor([False, True])
        >>> attack(rows, mask, step=49)[1], attack(rows, mask, step=50)[1]
        (tensor([3.]), tensor([-3.]))
    """

    start: int
    attack: Attack | str

    name = "late"
    aim = "What the attack behind it changes, after a time without a trace."

    def __post_init__(self) -> None:
        check_count("start", self.start)
        attack = attacks.parse(self.attack) if isinstance(self.attack, str) else self.attack
        check_instance("attack", attack, Attack)
        object.__setattr__(self, "attack", attack)

    @property
    def inner(self) -> Attack:
        """The attack from the step `start` on."""
        assert isinstance(self.attack, Attack)
        return self.attack

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    @property
    def needs_directions(self) -> frozenset[str]:
        return self.inner.needs_directions

    @property
    def looks_at_honest(self) -> bool:
        return self.inner.looks_at_honest

    @property
    def takes_state(self) -> bool:
        return self.inner.takes_state

    @property
    def saturates(self) -> bool:
        return self.inner.saturates

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.own if context.step < self.start else self.inner._bad_rows(context)

    def _learn(self, context: AttackContext) -> State:
        return context.state if context.step < self.start else self.inner._learn(context)
