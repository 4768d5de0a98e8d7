"""Breakdown: what any minority can do to the direction and to what is carried, over many steps."""

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from holdfast import RobustStep, bgmd, preset
from holdfast.robust_step import Step
from holdfast.seeds import stream
from holdfast.selectors import Cyclic, NormSampling, TopNorm, Uniform
from tests.loops import naming
from tests.samples import gaussian

N, D, N_STEPS = 15, 400, 60
Attack = Callable[[Tensor, Tensor, int], Tensor]


def honest_rows(n: int, t: int) -> Tensor:
    """A common gradient of length about 2 and noise as long; a fifth of the columns are zero."""
    rows = 0.1 * gaussian(1, D, seed=99) + 0.1 * gaussian(n, D, seed=t)
    rows[:, : D // 5] = 0.0
    return rows


def scaled(size: float) -> Attack:
    return lambda honest, carried, n_bad: size * honest[:n_bad]


def hidden(size: float) -> Attack:
    """Like the mean, with a lie where honest rows are zero: rarely drawn unless it is seen."""

    def attack(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
        bad = honest.mean(0).repeat(n_bad, 1)
        bad[:, : D // 5] = size
        return bad

    return attack


def hijack(size: float) -> Attack:
    """One row takes every chance to be drawn; the others lie in columns that then have none."""

    def attack(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
        bad = honest.mean(0).repeat(n_bad, 1)
        bad[0] = 0.0
        bad[0, D // 5 : D // 5 + 200] = 1e20
        bad[1:, : D // 5] = size
        bad[1:, -50:] = -size
        return bad

    return attack


def lone(size: float) -> Attack:
    """Each bad row lies in a single column of its own."""

    def attack(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
        bad = honest.mean(0).repeat(n_bad, 1)
        bad[torch.arange(n_bad), torch.arange(n_bad)] = size
        return bad

    return attack


def cancelling(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
    """Minus what is carried."""
    return (-carried - 5 * honest.mean(0)).repeat(n_bad, 1)


def alternating(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
    """1e30 and 1e-30 in turn, so that no scale is ever usual."""
    return honest[:n_bad] * torch.tensor([1e30, 1e-30]).repeat(n_bad)[:n_bad, None]


def drifting(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
    """One deviation from the mean, always to the same side: a slow push of what is carried."""
    bad = honest.mean(0) - honest.std(0)
    bad[: D // 5] = -0.1
    return bad.repeat(n_bad, 1)


def feeding(honest: Tensor, carried: Tensor, n_bad: int) -> Tensor:
    """As long as an honest row, along what is carried, to keep it alive."""
    along = carried / max(1e-9, float(carried.norm())) * float(honest.norm(dim=1).median())
    return along.repeat(n_bad, 1)


ATTACKS: dict[str, Attack] = {
    "-100": scaled(-100.0),
    "1e30": scaled(1e30),
    "nan": scaled(float("nan")),
    "hidden 1": hidden(1.0),
    "hidden 1e30": hidden(1e30),
    "hijack 1e3": hijack(1e3),
    "hijack 1e30": hijack(1e30),
    "lone 1e6": lone(1e6),
    "cancelling": cancelling,
    "alternating": alternating,
    "drifting": drifting,
    "feeding": feeding,
}


def largest(step: Step, attack: Attack | None, n_bad: int, n_steps: int) -> Tensor:
    """[2] the largest norm of a direction, and of what is carried in units of gradients."""
    lr, carried, found = 0.1, torch.zeros(D), torch.zeros(2, dtype=torch.float64)
    for t in range(n_steps):
        rows = honest_rows(N, t)
        if attack is not None:
            rows[:n_bad] = attack(rows[n_bad:], carried, n_bad)
        result = step(rows[torch.randperm(N, generator=stream(t, "order"))], lr=lr)
        norms = torch.tensor([float(result.direction.norm()), result.carried_norm / lr])
        found = torch.maximum(found, norms)
        state = step.state_dict()["carried"]
        carried = torch.zeros(D) if state is None or state.ndim == 2 else state / lr
    return found


FORMS: dict[str, Callable[[], Step]] = {
    "bgmd": lambda: bgmd(fraction=0.1),
    "few wide tiles": lambda: bgmd(fraction=0.03, tile=16),
    "median, uniform": lambda: RobustStep(
        "geometric-median", selector=Uniform(fraction=0.1, tile=4)
    ),
    "radius filter, cyclic": lambda: RobustStep(
        "radius-filter", selector=Cyclic(fraction=0.1, tile=4)
    ),
    "covariance filter, sampled": lambda: RobustStep(
        "covariance-filter", selector=NormSampling(fraction=0.1, tile=4)
    ),
    "coordinate median, largest": lambda: RobustStep(
        "coordinate-median", selector=TopNorm(fraction=0.1, tile=1)
    ),
    "sketched filter, largest": lambda: bgmd(
        fraction=0.1, rule="sketched(fraction=0.1) | radius-filter"
    ),
}


@lru_cache
def largest_when_clean(form: str) -> Tensor:
    return largest(FORMS[form](), None, 0, N_STEPS)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("n_bad", [1, 7])
def test_bgmd_holds(attack: str, n_bad: int) -> None:
    """One or 7 bad rows of 15, any size: at most 15 times what clean rows leave."""
    found = largest(FORMS["bgmd"](), ATTACKS[attack], n_bad, N_STEPS)
    assert bool((found < 15 * largest_when_clean("bgmd")).all())


@pytest.mark.parametrize("form", list(FORMS)[1:])
def test_every_rule_holds_with_every_selector(form: str) -> None:
    """6 bad rows of 15: the rule sees whole rows, so no block and nothing carried weakens it."""
    for attack in ("hidden 1", "hidden 1e30", "hijack 1e30", "cancelling", "feeding"):
        with naming(attack):
            found = largest(FORMS[form](), ATTACKS[attack], 6, N_STEPS)
            assert bool((found < 15 * largest_when_clean(form)).all())


@pytest.mark.parametrize("size", [1e6, 1e12, 1e30])
def test_one_row_breaks_the_papers_memory(size: float) -> None:
    """Breakdown point 0: one row of 15 makes the mean, and so the direction, any size.

    The median of each block is robust. But it moves with what is added to all rows, and that is
    what the mean has collected.
    """
    direction, carried = largest(preset("bgmd-paper(fraction=0.1)"), hidden(size), 1, 30)
    assert float(carried) > 0.1 * size
    assert float(direction) > 0.01 * size
    assert bool((largest(bgmd(fraction=0.1), hidden(size), 1, 30) < 100).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rest", [1e-9, 1e-20, 0.0])
def test_rows_that_hardly_show_in_the_sketch(dtype: torch.dtype, rest: float) -> None:
    """Bad rows have a huge entry each; what else is drawn of them may be scaled up by 1e34."""
    for n_bad, spread in ((1, 0.0), (1, 0.1), (8, 1e-3), (8, 0.1)):
        rows = (1 + spread * gaussian(20, 200, dtype=torch.float64)).to(dtype)
        rows[:n_bad] = rest * gaussian(n_bad, 200, seed=1, dtype=dtype)
        rows[torch.arange(n_bad), torch.arange(n_bad)] = 1e25
        for seed in range(4):
            result = bgmd(fraction=0.02, generator=stream(seed, "step"))(rows, lr=0.1)
            assert float(result.direction.double().norm()) < 50
            assert result.carried_norm / 0.1 < 50


@pytest.mark.parametrize("rule", ["geometric-median", "coordinate-median", None])
@pytest.mark.parametrize("light", [0.0, 0.1])
def test_weights_of_rows_bound_what_a_row_can_do(rule: str | None, light: float) -> None:
    """Five rows of nine, but with little weight or none: nothing follows them."""
    step, norms = bgmd(fraction=0.1, rule=rule), []
    weights = torch.tensor([1.0] * 4 + [light] * 5)
    for t in range(80):
        rows = 1 + 0.1 * gaussian(9, 40, seed=t)
        rows[4:] = 0.0
        rows[4:, :4] = 1e15
        norms.append(step(rows, lr=1.0, row_weights=weights).carried_norm)
    assert max(norms[40:]) < 2 * max(norms[:40]) < 500
