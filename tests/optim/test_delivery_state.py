"""What is pending: saved, resumed and refused."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from holdfast import Layout, bgmd
from holdfast.errors import NonFiniteMemoryError
from holdfast.optim import RobustOptimizer
from holdfast.selectors import NormSampling, TopNorm
from tests.optim.networks import (
    OPTIMIZERS,
    MakeOptimizer,
    batches,
    delivering,
    every_optimizer,
    network,
    parameters_of,
    pending_of,
    source_of,
    train,
)
from tests.robust_step.steps import same_state, through_a_file
from tests.samples import gaussian


@every_optimizer
def test_resumed_is_uninterrupted_bit_for_bit(make: MakeOptimizer) -> None:
    """With a random rule and a random block, through a file."""

    def start() -> tuple[nn.Module, RobustOptimizer]:
        model, selector = network(), NormSampling(fraction=0.3, tile=1)
        return model, delivering(model, make, selector, "sketched(fraction=0.3) | medoid")

    found = []
    for stops in (False, True):
        model, optimizer = start()
        for t, (x, y) in enumerate(batches(5)):
            if stops and t == 2:
                saved = through_a_file({"model": model.state_dict(), "own": optimizer.state_dict()})
                model, optimizer = start()
                model.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["own"])
            optimizer.zero_grad()
            optimizer.step(source_of(model)(x, y))
        found.append((parameters_of(model), pending_of(optimizer)))
    assert found[0][0].equal(found[1][0])
    assert found[0][1].equal(found[1][1])


def test_a_saved_state_does_not_follow_later_steps() -> None:
    model = network()
    optimizer = delivering(model, OPTIMIZERS["SGD"])
    states = [optimizer.state_dict() for _ in train(model, optimizer, 2)]
    first = states[0]["holdfast"]["pending"]
    assert not first.equal(states[1]["holdfast"]["pending"])
    optimizer.load_state_dict(states[0])
    list(train(model, optimizer, 1))
    assert first.equal(states[0]["holdfast"]["pending"])
    assert states[0]["holdfast"]["step"]["n_steps"] == 1


def test_rows_of_other_parameters_do_not_get_what_is_pending() -> None:
    """Refused before anything moves."""
    one, other = network(), nn.Linear(3, 2)
    inner = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
    optimizer = RobustOptimizer(inner, bgmd(fraction=0.3))
    list(train(one, optimizer, 1))
    before, state = parameters_of(other), optimizer.state_dict()
    message = r"^`rows` must have the 83 columns of the pending update, got 8\.$"
    with pytest.raises(ValueError, match=message):
        optimizer.step(Layout(other).rows(gaussian(5, 8)))
    assert parameters_of(other).equal(before)
    assert same_state(optimizer.state_dict()["holdfast"]["step"], state["holdfast"]["step"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_undone(value: float) -> None:
    model = network()
    optimizer = delivering(model, OPTIMIZERS["SGD"])
    list(train(model, optimizer, 2))
    before, pending = parameters_of(model), pending_of(optimizer)
    optimizer.backward(source_of(model)(*next(batches(1))))
    next(model.parameters()).grad.fill_(value)  # type: ignore[union-attr]
    with pytest.raises(NonFiniteMemoryError, match=r"^`update` must be finite, got NaN or inf"):
        optimizer.step()
    assert parameters_of(model).equal(before)
    assert pending_of(optimizer).equal(pending)
    assert optimizer.robust_step.n_steps == 2


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "groups": (lambda s: s["param_groups"].append(s["param_groups"][0]), "parameter group"),
    "no pending": (lambda s: s["holdfast"].pop("pending"), r"^`state_dict` must hold 'holdfast'"),
    "a matrix": (
        lambda s: s["holdfast"].update(pending=torch.zeros(3, 2)),
        r"^`state_dict\['holdfast'\]\['pending'\]` must be None or a tensor \[d\] for Robust",
    ),
    "nan": (
        lambda s: s["holdfast"]["pending"].fill_(torch.nan),
        r"^`state_dict\['holdfast'\]\['pending'\]` must be finite, got NaN or infinity\.$",
    ),
    "step": (
        lambda s: s["holdfast"]["step"].update(n_steps=-1),
        r"^`state\['n_steps'\]` must be a whole number of at least 0, got -1\.$",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_failed_load_changes_nothing(name: str) -> None:
    model = network()
    optimizer = delivering(model, OPTIMIZERS["SGD"])
    list(train(model, optimizer, 2))
    before = copy.deepcopy(optimizer.state_dict())
    broken = copy.deepcopy(before)
    broken["holdfast"]["step"]["n_steps"] = 77
    spoil, message = BROKEN[name]
    spoil(broken)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(broken)
    after = optimizer.state_dict()
    assert same_state(after["holdfast"]["step"], before["holdfast"]["step"])
    assert after["holdfast"]["pending"].equal(before["holdfast"]["pending"])


def test_a_pending_update_is_refused_where_nothing_is_delivered() -> None:
    model = nn.Linear(3, 2)
    delivering = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), bgmd(fraction=0.5))
    rows = Layout(model).rows(torch.ones(5, 8))
    delivering.step(rows)
    plain = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), "mean")
    with pytest.raises(ValueError, match=r"`state_dict` must hold no pending update"):
        plain.load_state_dict(delivering.state_dict())


def test_an_error_while_a_block_is_chosen_undoes_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(3, 2)
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), bgmd(fraction=0.5))
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TopNorm, "select", stop)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(Layout(model).rows(torch.ones(5, 8)))
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert parameter.equal(value)
