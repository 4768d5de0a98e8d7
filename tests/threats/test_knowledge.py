"""What attackers know reaches them, and what they lack is named."""

from dataclasses import dataclass
from typing import Any, final

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import Mean
from holdfast.seeds import stream
from holdfast.testing import check_attack
from holdfast.threats import Attack, AttackContext, LittleIsEnough, NoisyRows, ScaledFlip, State
from tests.samples import gaussian
from tests.threats.cases import some_bad

N, D, N_BAD = 9, 12, 3
ROWS, MASK = gaussian(N, D), some_bad(N, N_BAD)


@final
@dataclass(frozen=True, kw_only=True)
class Push(Attack):
    """The honest mean, pushed along a direction, with a size that grows; counts its searches."""

    direction: str = "true gradient"

    name = "push"
    aim = "The part of the direction along a given one."
    looks_at_honest = True
    takes_state = True
    needs = frozenset({"rule"})

    @property
    def needs_directions(self) -> frozenset[str]:
        return frozenset({self.direction})

    def _search(self, context: AttackContext) -> Tensor:
        context.check_state(1)
        last = 0.0 if context.state is None else float(context.state)
        SEARCHES.append(context.step)
        return torch.tensor([last + 1.0], dtype=context.dtype)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        size = float(context.once(self._search))
        return (context.mean + size * context.direction(self.direction)) * context.unit

    def _learn(self, context: AttackContext) -> State:
        return context.once(self._search)


SEARCHES: list[int] = []


def test_directions_and_steps_reach_the_attack() -> None:
    """One search per step serves both the rows and the state."""
    wanted, state = ROWS[~MASK].mean(0), None
    direction = torch.zeros(D).index_fill_(0, torch.tensor([4]), 1e30)
    SEARCHES.clear()
    for step in range(3):
        rows = ROWS.clone()
        known: Any = {"rule": "mean", "directions": {"true gradient": direction}, "step": step}
        state = Push().overwrite(rows, MASK, state=state, **known)
        unit = AttackContext(rows=ROWS, mask=MASK).unit
        pushed = wanted + unit * (step + 1) * (direction > 0)
        torch.testing.assert_close(rows[MASK], pushed.expand(N_BAD, D))
    assert state is not None
    assert float(state) == 3.0
    assert SEARCHES == [0, 1, 2]


def test_an_attack_with_everything_keeps_its_promises() -> None:
    check_attack(Push())


def test_a_zero_direction_stays_zero() -> None:
    context = AttackContext(rows=ROWS, mask=MASK, directions={"none": torch.zeros(D)})
    assert not bool(context.direction("none").any())


WRONG: list[tuple[Attack, dict[str, Any], str]] = [
    (NoisyRows(), {}, r"`generator` must be a torch\.Generator, got NoneType\."),
    (LittleIsEnough(z="optimized"), {},
     r"`rule` must be given to LittleIsEnough\(z='optimized'\), got None\."),
    (ScaledFlip(), {"rule": 3}, r"`rule` must be a rule, its name or a function .*, got int\."),
    (LittleIsEnough(z="optimized"), {"rule": "meen"}, r"`rule` must be one of .*, got 'meen' .*"),
    (Push(), {"rule": Mean()},
     r"`directions` must hold 'true gradient' \(needed by Push\(.*\)\), got no directions\."),
    (Push(), {"rule": Mean(), "directions": {"drift": torch.zeros(D), "all": torch.zeros(D)}},
     r"`directions` must hold 'true gradient' \(needed by Push\(.*\)\), got 'drift', 'all'\."),
    (ScaledFlip(), {"directions": {"drift": torch.zeros(D + 1)}},
     r"`directions\['drift'\]` must have shape \(12,\), one entry per column, got \(13,\)\."),
    (ScaledFlip(), {"memory": torch.zeros(N, D)}, r"`memory` must have shape \(12,\), .*"),
    (ScaledFlip(), {"sections": (5, 6)},
     r"`sections` must add up to 12, the number of columns, got 11\."),
    (ScaledFlip(), {"sections": (13, -1)},
     r"`sections` must be a whole number of at least 1, got -1\."),
    (ScaledFlip(), {"step": -1}, r"`step` must be a whole number of at least 0, got -1\."),
]  # fmt: skip


@pytest.mark.parametrize(("attack", "known", "message"), WRONG)
def test_what_is_missing_or_wrong_is_named(
    attack: Attack, known: dict[str, Any], message: str
) -> None:
    for call in (attack, attack.overwrite):
        rows = ROWS.clone()
        with pytest.raises(ValueError, match=f"^{message}$"):
            call(rows, MASK, **known)
        assert torch.equal(rows, ROWS)


def test_attacks_ignore_what_they_have_no_use_for() -> None:
    known: Any = {
        "generator": stream(0, "attack"),
        "rule": Mean(),
        "rule_arguments": {"reference": torch.ones(D)},
        "memory": torch.ones(D),
        "directions": {"true gradient": torch.ones(D)},
        "step": 7,
    }
    assert torch.equal(ScaledFlip()(ROWS, MASK, **known), ScaledFlip()(ROWS, MASK))
    assert ScaledFlip().learn(ROWS, MASK, **known) is None
