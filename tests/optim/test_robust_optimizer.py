"""Any torch optimizer with a robust step: equal to three explicit lines, and usable by torch."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer, lr_scheduler

from holdfast import RobustStep, SelectFirstStep, bgmd
from holdfast.aggregators import Bucketing, CenteredClipping, GeometricMedian
from holdfast.errors import NonFiniteRowsError, UnknownNameError
from holdfast.optim import RobustOptimizer, robust_backward
from holdfast.robust_step import MeanMemory, Step
from holdfast.seeds import stream
from holdfast.selectors import NormSampling
from holdfast.sources import MicroBatches
from tests.optim.networks import (
    MakeOptimizer,
    batches,
    every_optimizer,
    network,
    parameters_of,
    source_of,
)
from tests.robust_step.steps import through_a_file


def select_first() -> Step:
    selector, memory = NormSampling(fraction=0.3, tile=1), MeanMemory()
    generator = stream(1, "step")
    return SelectFirstStep(
        "geometric-median", selector=selector, memory=memory, generator=generator
    )


STEPS: dict[str, Callable[[], Step]] = {
    "a rule": lambda: RobustStep("geometric-median"),
    "select first": select_first,
}
every_step = pytest.mark.parametrize("make_step", STEPS.values(), ids=STEPS)


def lr_of(model: nn.Module, optimizer: Optimizer) -> float | Tensor:
    """The learning rate by hand, for one or several groups."""
    rates = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
    if len(set(rates.values())) == 1:
        return next(iter(rates.values()))
    return torch.cat([torch.full((p.numel(),), rates[id(p)]) for p in model.parameters()])


def explicit(make: MakeOptimizer, step: Step, n_steps: int) -> Tensor:
    """The twin: a step, an optimizer and three lines."""
    model = network()
    optimizer, source = make(list(model.parameters())), source_of(model)
    for x, y in batches(n_steps):
        optimizer.zero_grad()
        step.backward(source(x, y), lr=lr_of(model, optimizer))
        optimizer.step()
    return parameters_of(model)


@every_optimizer
@every_step
def test_it_is_the_three_lines_bit_for_bit_and_resumes(
    make: MakeOptimizer, make_step: Callable[[], Step]
) -> None:
    model = network()
    optimizer = RobustOptimizer(make(list(model.parameters())), make_step())
    for t, (x, y) in enumerate(batches(5)):
        if t == 2:
            saved = through_a_file({"model": model.state_dict(), "own": optimizer.state_dict()})
            model = network()
            optimizer = RobustOptimizer(make(list(model.parameters())), make_step())
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["own"])
        optimizer.zero_grad()
        optimizer.step(source_of(model)(x, y))
    assert parameters_of(model).equal(explicit(make, make_step(), 5))
    assert optimizer.robust_step.n_steps == 5


def test_a_rule_its_name_and_a_step_are_the_same() -> None:
    found = []
    for rule in (GeometricMedian(), "geometric-median", RobustStep("geometric-median")):
        model = network()
        optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), rule)
        optimizer.step(source_of(model)(*next(batches(1))))
        found.append(parameters_of(model))
    assert found[0].equal(found[1])
    assert found[0].equal(found[2])
    default = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert default.robust_step.rule.name == "radius-filter"


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=2),
    "lambda with warm-up": lambda o: lr_scheduler.LambdaLR(o, lambda t: min(1.0, t / 2)),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, gamma=0.5)],
        milestones=[2],
    ),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
@every_step
def test_schedulers_accept_it_and_the_memory_follows_the_rate(
    make: Callable[[Optimizer], Any], make_step: Callable[[], Step]
) -> None:
    found = []
    for wrapped in (True, False):
        model, step = network(), make_step()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        optimizer = RobustOptimizer(inner, step) if wrapped else inner
        scheduler, source = make(optimizer), source_of(model)
        for x, y in batches(5):
            optimizer.zero_grad()
            if isinstance(optimizer, RobustOptimizer):
                optimizer.step(source(x, y))
            else:
                step.backward(source(x, y), lr=inner.param_groups[0]["lr"])
                inner.step()
            scheduler.step(*[1.0] * isinstance(scheduler, lr_scheduler.ReduceLROnPlateau))
        found.append(parameters_of(model))
    assert found[0].equal(found[1])


def test_gradients_can_be_clipped_between_backward_and_step() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), "mean")
    before = parameters_of(model)
    result = optimizer.backward(source_of(model)(*next(batches(1))))
    assert result is optimizer.result
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    assert float((parameters_of(model) - before).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_weight_decay_is_outside_the_aggregation() -> None:
    """With rows of zeros only the decay moves parameters."""
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    optimizer, before = RobustOptimizer(inner, "geometric-median"), parameters_of(model)
    source = MicroBatches(model, lambda output, _: 0.0 * output.sum(), n_rows=5)
    optimizer.step(source(*next(batches(1))))
    torch.testing.assert_close(parameters_of(model), before * (1 - 0.1 * 0.5))


@pytest.mark.parametrize("with_block", [False, True])
def test_rules_get_what_they_need_of_the_call(with_block: bool) -> None:
    model, rule = network(), CenteredClipping(radius=0.1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = RobustOptimizer(inner, bgmd(rule=rule) if with_block else rule)
    source = source_of(model)
    rows, reference = source(*next(batches(1))), torch.ones(source.layout.d)
    optimizer.step(rows, reference=reference)
    assert optimizer.result is not None
    assert optimizer.result.aggregate.vector.equal(rule(rows, reference=reference))


def test_hooks_groups_and_state_are_those_of_the_inner_optimizer() -> None:
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = RobustOptimizer(inner, bgmd())
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.step(source_of(model)(*next(batches(1))))
    assert calls == ["before", "after"]
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.state is inner.state
    assert optimizer.defaults is inner.defaults
    extra = nn.Parameter(torch.zeros(2))
    optimizer.add_param_group({"params": [extra]})
    assert inner.param_groups[-1]["params"] == [extra]
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert isinstance(optimizer, Optimizer)
    assert repr(optimizer).startswith("RobustOptimizer(SGD")
    optimizer.param_groups = [dict(inner.param_groups[0], lr=0.0)]
    assert inner.param_groups[0]["lr"] == 0.0


@pytest.mark.parametrize("rule", ["geometric-median", bgmd()], ids=["a rule", "bgmd"])
def test_rows_that_are_not_finite_are_an_error_and_change_nothing(rule: str | Step) -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), rule)
    before = parameters_of(model)
    rows = source_of(model).layout.rows(torch.full((5, before.numel()), torch.nan))
    with pytest.raises(NonFiniteRowsError, match="finite in at least half of the rows, got 5 of 5"):
        optimizer.step(rows)
    assert parameters_of(model).equal(before)
    assert optimizer.result is None


def test_a_copy_after_a_scheduler_was_attached_steps_itself() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), "mean")
    lr_scheduler.StepLR(optimizer, 1)
    before = parameters_of(model)
    # torch's generators cannot be copied.
    optimizer.robust_step.generator = None  # type: ignore[assignment]
    twin, copied = copy.deepcopy((model, optimizer))
    copied.robust_step.generator = stream(0, "twin")
    copied.step(source_of(twin)(*next(batches(1))))
    assert parameters_of(model).equal(before)
    assert not parameters_of(twin).equal(before)


@pytest.mark.parametrize("rule", ["geometric-median", bgmd()], ids=["a rule", "bgmd"])
def test_a_plain_gradient_is_not_taken_for_a_robust_one(rule: str | Step) -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), rule)
    x, y = next(batches(1))
    before = parameters_of(model)

    def closure() -> float:
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    message = r"`rows` must be given to `step`, or to `backward` before it: a plain gradient"
    for given in (None, closure):
        with pytest.raises(ValueError, match=message):
            optimizer.step(closure=given)
    assert parameters_of(model).equal(before)
    optimizer.step(source_of(model)(x, y), closure)
    assert optimizer.robust_step.n_steps == 1
    with pytest.raises(ValueError, match="a plain gradient is not robust"):
        optimizer.step()  # the direction is spent


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda o: RobustOptimizer(o.param_groups), r"`optimizer` must be an Optimizer, got list"),
        (
            lambda o: RobustOptimizer(torch.optim.LBFGS(network().parameters())),
            r"`optimizer` must have a step without a closure, .* got LBFGS",
        ),
        (
            lambda o: o.step(torch.zeros(3, 2)),
            r"`rows` must have a layout \(use a source, .*\), got Tensor",
        ),
        (
            lambda o: o.step(source_of(network())(*next(batches(1)))),
            r"`rows` must be of parameters that the optimizer holds, got '0.weight', which",
        ),
        (
            lambda o: o.load_state_dict(o.optimizer.state_dict()),
            r"`state_dict` must hold 'holdfast' "
            r"\(load a plain state with `.optimizer.load_state_dict`\), got \[",
        ),
        (lambda o: o.load_state_dict(3), r"`state_dict` must hold 'holdfast' .* got int"),
    ],
)
def test_bad_input(attempt: Callable[[Any], object], message: str) -> None:
    optimizer = RobustOptimizer(torch.optim.SGD(network().parameters(), lr=0.1), bgmd())
    with pytest.raises(ValueError, match=f"^{message}"):
        attempt(optimizer)


WRONG_RULES: list[tuple[Any, str]] = [
    (None, "NoneType"),
    (3, "int"),
    (GeometricMedian, "the class GeometricMedian"),
    (RobustStep, "the class RobustStep"),
    (bgmd, "function"),
]


@pytest.mark.parametrize(("rule", "got"), WRONG_RULES, ids=[got for _, got in WRONG_RULES])
def test_what_is_no_rule_is_named(rule: Any, got: str) -> None:
    inner = torch.optim.SGD(network().parameters(), lr=0.1)
    usage = r"as in RobustOptimizer\(optimizer, 'radius-filter'\)"
    message = rf"^`rule` must be a rule, its name or a step, {usage}, got {got}\.$"
    with pytest.raises(ValueError, match=message):
        RobustOptimizer(inner, rule)
    with pytest.raises(UnknownNameError, match=r"^`rule` must be one of .*, got 'radius'"):
        RobustOptimizer(inner, "radius")


def test_a_random_rule_needs_a_generator_in_robust_backward() -> None:
    model, (x, y) = network(), next(batches(1))
    rule = Bucketing(bucket_size=2, rule=GeometricMedian())
    with pytest.raises(ValueError, match=r"`generator` must be given to Bucketing"):
        robust_backward(model, cross_entropy, x, y, rule=rule)
    generator = stream(0, "buckets")
    found = [
        robust_backward(model, cross_entropy, x, y, rule=rule, generator=generator).direction
        for _ in range(2)
    ]
    assert not found[0].equal(found[1])


def test_a_preset_is_known_by_its_name() -> None:
    model = nn.Linear(3, 2)
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), "bgmd(fraction=0.5)")
    assert repr(optimizer.robust_step) == repr(bgmd(fraction=0.5))


@pytest.mark.parametrize(
    ("rule", "n_rows", "n_warnings"),
    [("radius-filter", 2, 1), ("radius-filter", 4, 0), ("mean", 2, 0), ("geometric-median", 1, 1)],
)
def test_too_few_rows_for_any_rule_are_said_once(
    rule: str, n_rows: int, n_warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), rule)
    source = MicroBatches(model, cross_entropy, n_rows=n_rows)
    for x, y in batches(3):
        optimizer.zero_grad()
        optimizer.step(source(x, y))
    assert len(caplog.messages) == n_warnings
    for message in caplog.messages:
        assert message.startswith(f"of {n_rows} rows, ")
        assert message.endswith(" resists no bad one: use more")
