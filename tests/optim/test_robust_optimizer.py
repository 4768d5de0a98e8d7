"""Any torch optimizer with a robust step: equal to three explicit lines, and usable by torch."""

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from holdfast.memory import RobustMemory
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer, lr_scheduler

from holdfast import RobustStep, bgmd
from holdfast.aggregators import Bucketing, CenteredClipping, GeometricMedian, Mean
from holdfast.errors import NonFiniteRowsError
from holdfast.optim import RobustOptimizer, robust_backward
from holdfast.seeds import stream
from holdfast.selectors import NormSampling
from holdfast.sources import MicroBatches

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2
    ),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "two groups": lambda p: torch.optim.SGD(
        [{"params": p[:1], "lr": 0.2}, {"params": p[1:], "lr": 0.0}], lr=0.1
    ),
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batches(n: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = stream(0, "batches")
    for _ in range(n):
        yield (
            torch.randn(20, 6, generator=generator),
            torch.randint(0, 3, (20,), generator=generator),
        )


def step() -> RobustStep:
    return RobustStep(
        GeometricMedian(),
        selector=NormSampling(fraction=0.3, tile=1),
        memory=RobustMemory(),
        generator=stream(1, "step"),
    )


def parameters_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def lr_of(model: nn.Module, optimizer: Optimizer) -> float | Tensor:
    """The learning rate by hand, for one or several groups."""
    rates = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
    if len(set(rates.values())) == 1:
        return next(iter(rates.values()))
    return torch.cat([torch.full((p.numel(),), rates[id(p)]) for p in model.parameters()])


def explicit(make: Callable[..., Optimizer], n_steps: int) -> Tensor:
    """The twin: a step, an optimizer and three lines."""
    model = network()
    optimizer, robust, source = (
        make(list(model.parameters())),
        step(),
        MicroBatches(model, cross_entropy, n_rows=5),
    )
    for x, y in batches(n_steps):
        optimizer.zero_grad()
        robust.backward(source(x, y), lr=lr_of(model, optimizer))
        optimizer.step()
    return parameters_of(model)


@every_optimizer
def test_it_is_the_three_lines_bit_for_bit(make: Callable[..., Optimizer]) -> None:
    model = network()
    optimizer = RobustOptimizer(make(list(model.parameters())), step())
    source = MicroBatches(model, cross_entropy, n_rows=5)
    for x, y in batches(4):
        optimizer.zero_grad()
        optimizer.step(source(x, y))
    assert torch.equal(parameters_of(model), explicit(make, 4))


@every_optimizer
def test_resumed_is_uninterrupted_bit_for_bit(make: Callable[..., Optimizer]) -> None:
    model = network()
    optimizer = RobustOptimizer(make(list(model.parameters())), step())
    file = io.BytesIO()
    for t, (x, y) in enumerate(batches(5)):
        if t == 2:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            model = network()
            optimizer = RobustOptimizer(make(list(model.parameters())), bgmd(fraction=0.3, tile=1))
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        optimizer.zero_grad()
        optimizer.step(MicroBatches(model, cross_entropy, n_rows=5)(x, y))
    assert torch.equal(parameters_of(model), explicit(make, 5))


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=5),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=2),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9),
    "lambda with warm-up": lambda o: lr_scheduler.LambdaLR(o, lambda t: min(1.0, t / 2)),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, gamma=0.5)],
        milestones=[2],
    ),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers_take_it_and_the_memory_follows_the_rate(
    make: Callable[[Optimizer], Any],
) -> None:
    found = []
    for wrapped in (True, False):
        model = network()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        robust = step()
        optimizer = RobustOptimizer(inner, robust) if wrapped else inner
        scheduler, source = make(optimizer), MicroBatches(model, cross_entropy, n_rows=5)
        for x, y in batches(5):
            optimizer.zero_grad()
            if isinstance(optimizer, RobustOptimizer):
                optimizer.step(source(x, y))
            else:
                robust.backward(source(x, y), lr=inner.param_groups[0]["lr"])
                inner.step()
            scheduler.step()
        found.append(parameters_of(model))
    assert torch.equal(found[0], found[1])


def test_reduce_on_plateau_takes_it() -> None:
    optimizer = RobustOptimizer(torch.optim.SGD(network().parameters(), lr=0.1), step())
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(3):
        scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] < 0.1


def test_gradients_can_be_clipped_between_backward_and_step() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), RobustStep(Mean()))
    before = parameters_of(model)
    x, y = next(batches(1))
    result = optimizer.backward(MicroBatches(model, cross_entropy, n_rows=5)(x, y))
    assert result is optimizer.result
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    assert float((parameters_of(model) - before).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_weight_decay_is_outside_the_aggregation() -> None:
    """With rows of zeros only the decay moves parameters."""
    model = network()
    optimizer = RobustOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5), RobustStep(GeometricMedian())
    )
    before = parameters_of(model)
    source = MicroBatches(model, lambda output, _: 0.0 * output.sum(), n_rows=5)
    optimizer.step(source(*next(batches(1))))
    torch.testing.assert_close(parameters_of(model), before * (1 - 0.1 * 0.5))


def test_rules_get_what_they_need_of_the_call() -> None:
    model = network()
    optimizer = RobustOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), RobustStep(CenteredClipping(radius=0.1))
    )
    source = MicroBatches(model, cross_entropy, n_rows=5)
    x, y = next(batches(1))
    optimizer.step(source(x, y), reference=torch.zeros(source.layout.d))
    assert optimizer.result is not None


def test_hooks_groups_and_state_are_those_of_the_inner_optimizer() -> None:
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = RobustOptimizer(inner, step())
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.step(MicroBatches(model, cross_entropy, n_rows=5)(*next(batches(1))))
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


def scaled(
    overflow: bool, fused: bool = False
) -> tuple[nn.Module, RobustOptimizer, torch.amp.GradScaler, MicroBatches]:
    model = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120 if overflow else 2.0**8)
    inner = (
        torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        if fused
        else torch.optim.SGD(model.parameters(), lr=0.1)
    )
    optimizer = RobustOptimizer(inner, step())
    return model, optimizer, scaler, MicroBatches(model, cross_entropy, n_rows=5, scaler=scaler)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_changes_nothing_without_overflow(fused: bool) -> None:
    model, optimizer, scaler, source = scaled(overflow=False, fused=fused)
    twin = network()
    inner = (
        torch.optim.AdamW(twin.parameters(), lr=0.1, fused=True)
        if fused
        else torch.optim.SGD(twin.parameters(), lr=0.1)
    )
    plain, plain_source = (
        RobustOptimizer(inner, step()),
        MicroBatches(twin, cross_entropy, n_rows=5),
    )
    for x, y in batches(3):
        optimizer.zero_grad()
        optimizer.backward(source(x, y), scaler=scaler)
        scaler.step(optimizer)
        scaler.update()
        plain.zero_grad()
        plain.step(plain_source(x, y))
    torch.testing.assert_close(parameters_of(model), parameters_of(twin), rtol=1e-4, atol=1e-5)


def test_a_gradient_scaler_skips_the_step_if_all_rows_overflow() -> None:
    model, optimizer, scaler, source = scaled(overflow=True)
    x, y = next(batches(1))
    before, memory = parameters_of(model), optimizer.robust_step.state_dict()
    with torch.autocast("cpu", dtype=torch.float16):
        rows = source(x, y)
    assert not bool(rows.finite().any())
    assert optimizer.backward(rows, scaler=scaler) is None
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(parameters_of(model), before)
    assert scaler.get_scale() < 2.0**120
    after = optimizer.robust_step.state_dict()
    assert after["carried"] is None
    assert torch.equal(after["generator"], memory["generator"])
    assert optimizer.result is None


def test_a_row_that_overflows_alone_is_rejected_and_the_step_is_made() -> None:
    model, optimizer, scaler, source = scaled(overflow=False)
    x, y = next(batches(1))
    x[:4] = torch.inf
    before = parameters_of(model)
    result = optimizer.backward(source(x, y), scaler=scaler)
    assert result is not None
    assert result.rejected.tolist() == [True, False, False, False, False]
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(parameters_of(model), before)


def test_without_a_scaler_rows_that_are_not_finite_are_an_error_and_change_nothing() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), step())
    before = parameters_of(model)
    rows = MicroBatches(model, cross_entropy, n_rows=5).layout.rows(
        torch.full((5, before.numel()), torch.nan)
    )
    with pytest.raises(NonFiniteRowsError, match="finite in at least half of the rows, got 5 of 5"):
        optimizer.step(rows)
    assert torch.equal(parameters_of(model), before)
    assert optimizer.result is None


def test_a_failed_load_changes_nothing() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), step())
    optimizer.step(MicroBatches(model, cross_entropy, n_rows=5)(*next(batches(1))))
    before = copy.deepcopy(optimizer.state_dict())
    broken = copy.deepcopy(before)
    broken["param_groups"].append(broken["param_groups"][0])
    broken["robust_step"]["n_steps"] = 77
    with pytest.raises(ValueError, match="parameter group"):
        optimizer.load_state_dict(broken)
    assert optimizer.robust_step.n_steps == 1
    assert torch.equal(
        optimizer.state_dict()["robust_step"]["carried"], before["robust_step"]["carried"]
    )


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda o: RobustOptimizer(o.param_groups, o.robust_step),
            r"`optimizer` must be an Optimizer, got list\.",
        ),
        (
            lambda o: RobustOptimizer(o.optimizer, GeometricMedian()),  # type: ignore[arg-type]
            r"`step` must be a RobustStep, got GeometricMedian\.",
        ),
        (
            lambda o: o.step(torch.zeros(3, 2)),
            r"`rows` must carry a layout \(sources, .* make such rows\), got Tensor\.",
        ),
        (
            lambda o: o.step(MicroBatches(network(), cross_entropy, n_rows=5)(*next(batches(1)))),
            r"`rows` must be of parameters that the optimizer holds, got '0.weight', which",
        ),
        (
            lambda o: o.load_state_dict(o.optimizer.state_dict()),
            r"`state_dict` must hold 'robust_step' "
            r"\(load a plain state with `.optimizer.load_state_dict`\), got \[",
        ),
        (
            lambda o: o.load_state_dict(3),
            r"`state_dict` must hold 'robust_step' .* got int\.",
        ),
    ],
)
def test_bad_input(run: Callable[[RobustOptimizer], object], message: str) -> None:
    optimizer = RobustOptimizer(torch.optim.SGD(network().parameters(), lr=0.1), step())
    with pytest.raises(ValueError, match=message):
        run(optimizer)


def test_steps_within_autocast_are_as_exact_as_outside() -> None:
    model = network()
    rows = MicroBatches(model, cross_entropy, n_rows=5)(*next(batches(1)))
    outside = step()(rows, lr=0.1).direction
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(step()(rows, lr=0.1).direction, outside)
        assert torch.equal(GeometricMedian()(rows), RobustStep(GeometricMedian())(rows).direction)


def test_a_scaler_that_is_switched_off_is_no_scaler() -> None:
    model = network()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), step())
    source = MicroBatches(model, cross_entropy, n_rows=5, scaler=scaler)
    x, y = next(batches(1))
    with pytest.raises(NonFiniteRowsError):
        optimizer.backward(source(torch.full_like(x, torch.nan), y), scaler=scaler)
    optimizer.backward(source(x, y), scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    twin = network()
    plain = RobustOptimizer(torch.optim.SGD(twin.parameters(), lr=0.1), step())
    plain.step(MicroBatches(twin, cross_entropy, n_rows=5)(x, y))
    assert torch.equal(parameters_of(model), parameters_of(twin))


def test_a_scaler_belongs_to_backward() -> None:
    _, optimizer, scaler, source = scaled(overflow=False)
    with pytest.raises(TypeError, match="scaler"):
        optimizer.step(source(*next(batches(1))), scaler=scaler)  # type: ignore[call-arg]


def test_a_copy_after_a_scheduler_was_attached_steps_itself() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), RobustStep(Mean()))
    lr_scheduler.StepLR(optimizer, 1)
    before = parameters_of(model)
    # torch's generators cannot be copied.
    optimizer.robust_step.generator = None  # type: ignore[assignment]
    twin, copied = copy.deepcopy((model, optimizer))
    copied.robust_step.generator = stream(0, "twin")
    copied.step(MicroBatches(twin, cross_entropy, n_rows=5)(*next(batches(1))))
    assert torch.equal(parameters_of(model), before)
    assert not torch.equal(parameters_of(twin), before)


def test_a_plain_gradient_is_not_taken_for_a_robust_one() -> None:
    model = network()
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), step())
    x, y = next(batches(1))
    before = parameters_of(model)

    def closure() -> float:
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    for given in (None, closure):
        with pytest.raises(
            ValueError,
            match=r"`rows` must be given to `step`, or to `backward` before it: a plain gradient",
        ):
            optimizer.step(closure=given)
    assert torch.equal(parameters_of(model), before)
    optimizer.step(MicroBatches(model, cross_entropy, n_rows=5)(x, y), closure)
    assert optimizer.robust_step.n_steps == 1
    with pytest.raises(ValueError, match="a plain gradient is not robust"):
        optimizer.step()  # the direction is spent


def test_groups_can_be_replaced() -> None:
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = RobustOptimizer(inner, step())
    optimizer.param_groups = [dict(inner.param_groups[0], lr=0.0)]
    assert inner.param_groups[0]["lr"] == 0.0


def test_lbfgs_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"`optimizer` must be one whose step needs no closure, .* got LBFGS\."
    ):
        RobustOptimizer(torch.optim.LBFGS(network().parameters()), step())


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
    assert not torch.equal(found[0], found[1])
