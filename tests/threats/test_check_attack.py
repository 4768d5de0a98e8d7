"""Attacks that break a promise fail :func:`check_attack`, and the sentence says which one."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.testing import check_attack
from holdfast.threats import Attack, AttackContext, IeeeBitFlips, ScaledFlip, State
from tests.threats.cases import FIXED_SIZE


@dataclass(frozen=True, kw_only=True)
class Reversed(Attack):
    """The honest mean, reversed: keeps every promise."""

    name = "reversed"
    aim = "The sign of the direction."
    looks_at_honest = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return -context.mean * context.unit


class Aimless(Reversed):
    aim = "no sentence"


@dataclass(kw_only=True, unsafe_hash=True)
class Thawed(Attack):
    """A field that can be set."""

    factor: float = 1.0

    name = "thawed"
    aim = "Nothing."

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return -context.own


class TouchesHonestRows(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        context.rows[~context.mask] *= 2
        return super()._bad_rows(context)


class Mutates(Reversed):
    def __call__(self, rows: Any, mask: Tensor, **known: Any) -> Any:
        if isinstance(rows, Tensor):
            rows[mask] = 0.0
        return super().__call__(rows, mask, **known)


class MutatesWhenItLearns(Reversed):
    takes_state = True

    def _learn(self, context: AttackContext) -> State:
        return context.rows.mul_(2)[0].clone()


class Honest(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.own


class Reckless(Reversed):
    """Looks at honest rows and does not say so."""

    looks_at_honest = False


class GlobalRandomness(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        return torch.randn_like(context.own.float())


class SecretGenerator(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        return context.normal()


class IdleGenerator(Reversed):
    needs = frozenset({"generator"})


class HiddenState(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        n_calls = vars(self).get("n_calls", 0) + 1
        object.__setattr__(self, "n_calls", n_calls)
        return super()._bad_rows(context) * int(n_calls)


class Forgetful(Reversed):
    takes_state = True


class Overflows(Reversed):
    """Squares without the unit: 1e30 overflows in float32."""

    def _bad_rows(self, context: AttackContext) -> Tensor:
        mean = context.rows[~context.mask].to(context.dtype).mean(0)
        return -mean * mean.square().sum().sqrt() / mean.square().sum().sqrt()


class Crashes(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        if not bool(context.mean.isfinite().all()):
            raise RuntimeError("no NaN, please.")
        return super()._bad_rows(context)


class RoundsTwice(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        return -context.rows[~context.mask].mean(0) / 3 * 3


class Grows(Reversed):
    def _bad_rows(self, context: AttackContext) -> Tensor:
        return 1 - context.mean * context.unit


BROKEN: list[tuple[Attack, str]] = [
    (Aimless(), "'states its aim': `aim` must be one sentence, got 'no sentence'"),
    (Thawed(), "'is its configuration': the field `factor` can be set"),
    (TouchesHonestRows(), "'touches only bad rows': honest rows are not as they were"),
    (Mutates(), "'touches only bad rows': a call changes the rows it was given"),
    (MutatesWhenItLearns(), "'keeps its state outside': `learn` changes the rows"),
    (Honest(), "'changes every bad row': some bad rows are sent as they were"),
    (Reckless(), "'says whether it needs honest rows': it raises "),
    (GlobalRandomness(), "'is reproducible': it draws from torch's global generator"),
    (SecretGenerator(), "'is reproducible': it draws from a generator that is not in `needs`"),
    (IdleGenerator(), "'is reproducible': it needs a generator and does not draw from it"),
    (HiddenState(), "'is reproducible': equal generators give different rows"),
    (Forgetful(), "'keeps its state outside': `takes_state` is True, but `learn` returns no"),
    (Overflows(), "'survives extremes': finite rows (1e30 times as large, torch.float32) give"),
    (Crashes(), "'survives extremes': it raises RuntimeError: no NaN, please."),
    (RoundsTwice(), "'rounds half precision once': rows of torch."),
    (Grows(), "'scales with the rows': rows times 7.88861e-31 do not give the result times"),
]


@pytest.mark.parametrize(("attack", "how"), BROKEN, ids=lambda value: type(value).__name__)
def test_broken_attacks_fail(attack: Attack, how: str) -> None:
    with pytest.raises(AssertionError) as raised:
        check_attack(attack)
    assert str(raised.value).startswith(f"{attack!r} breaks the promise {how}")
    assert str(raised.value).endswith(".")
    assert not str(raised.value).endswith("..")


def test_a_sound_attack_passes() -> None:
    check_attack(Reversed())


def test_what_is_lacked_must_be_broken() -> None:
    with pytest.raises(
        AssertionError,
        match=r"^ScaledFlip\(factor=100\.0\) keeps the promise 'scales with the rows'; it must not",
    ):
        check_attack(ScaledFlip(), lacks=FIXED_SIZE)
    with pytest.raises(ValueError, match=r"^`lacks` must be one of .*, got 'scale'"):
        check_attack(ScaledFlip(), lacks={"scale"})


def test_dtypes_may_be_fewer() -> None:
    """The default bits do not exist in half precision."""
    with pytest.raises(AssertionError, match="`bits` must be below 16"):
        check_attack(IeeeBitFlips())
    check_attack(
        IeeeBitFlips(), dtypes=[torch.float32, torch.float64], lacks=["scales with the rows"]
    )
