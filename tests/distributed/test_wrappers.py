"""What wrappers and training loops can do, with a guard as without one."""

import contextlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import Guard, guard
from tests.distributed.cases import Known, full, gradient_of, shard
from tests.distributed.workers import Workers


class Branches(nn.Module):
    """A model with a frozen layer, and one that is used by some batches only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 9), nn.Linear(9, 3)
        self.frozen, self.sometimes = nn.Linear(9, 9), nn.Linear(9, 9)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor, detour: bool = False) -> Tensor:
        x = torch.tanh(self.frozen(self.first(x)))
        x = self.sometimes(x) if detour else x
        found: Tensor = self.last(x)
        return found


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))


def inputs(step: int, rank: int | None = None) -> Tensor:
    """Like those of all ranks, and a little different."""
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    common = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
    return common + 0.1 * torch.randn(16, 6, generator=generator)


def loss_of(output: Tensor) -> Tensor:
    return ((output.float() - 1.0) ** 2).mean()


def state_of(model: nn.Module) -> list[Tensor]:
    return [full(parameter.detach()).clone() for parameter in model.parameters()]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """With two groups of parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:2], "lr": 0.3},
        {"params": parameters[2:]},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def in_ddp(options: dict[str, Any], is_guarded: bool, per: Any) -> tuple[list[Tensor], list[int]]:
    """Five clean steps with clipping."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-4, **options)
    found = guard(model, per=per) if is_guarded else None
    optimizer = optimizer_of(model)
    for step in range(5):
        optimizer.zero_grad()
        loss_of(model(inputs(step))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return state_of(model), [] if found is None else found.counts.tolist()


@pytest.mark.parametrize("per", ["model", "bucket"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"static_graph": True, "gradient_as_bucket_view": True},
    ],
    ids=str,
)
def test_clean_ddp_training_is_the_same(
    workers: Workers, options: dict[str, Any], per: str
) -> None:
    plain = workers.run(in_ddp, options, False, per)
    guarded = workers.run(in_ddp, options, True, per)
    for parameters, counts in guarded:
        assert counts == [0, 0, 0, 0]
        torch.testing.assert_close(parameters, plain[0][0], rtol=1e-5, atol=1e-6)
        assert all(a.equal(b) for a, b in zip(parameters, guarded[0][0], strict=True))


def in_fsdp(dtype: torch.dtype | None, is_guarded: bool, reduce_dtype: torch.dtype | None) -> Any:
    """Five clean steps with clipping; the last one has two micro-batches."""
    model = network()
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce_dtype)
    for layer in model:  # type: ignore[attr-defined]
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    found = guard(model) if is_guarded else None
    optimizer = optimizer_of(model)
    for step in range(5):
        optimizer.zero_grad()
        if step == 4:
            model.set_requires_gradient_sync(False)  # type: ignore[operator]
            loss_of(model(inputs(10))).backward()
            model.set_requires_gradient_sync(True)  # type: ignore[operator]
        loss_of(model(inputs(step))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return state_of(model), None if found is None else (found.n_steps, found.counts.tolist())


@pytest.mark.parametrize(
    ("dtype", "reduce_dtype", "rtol"),
    [
        (None, None, 1e-5),
        (torch.bfloat16, None, 0.1),
        (torch.bfloat16, torch.float32, 1e-5),
        (torch.float16, None, 1e-2),
    ],
    ids=str,
)
def test_clean_fsdp_training_is_the_same(
    workers: Workers, dtype: torch.dtype, reduce_dtype: torch.dtype, rtol: float
) -> None:
    plain = workers.run(in_fsdp, dtype, False, reduce_dtype)
    guarded = workers.run(in_fsdp, dtype, True, reduce_dtype)
    for parameters, (n_steps, counts) in guarded:
        assert n_steps == 5
        assert counts == [0, 0, 0, 0]
        torch.testing.assert_close(parameters, plain[0][0], rtol=rtol, atol=rtol)
        assert all(a.equal(b) for a, b in zip(parameters, guarded[0][0], strict=True))


def accumulated(per: Any) -> tuple[Tensor, Tensor, list[int]]:
    """The gradient of two micro-batches, one of them under `no_sync`, with rank 1 being wrong."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-4)
    found = guard(model, per=per)
    for step in range(2):
        model.zero_grad()
        with model.no_sync():
            (loss_of(model(inputs(step))) / 2).backward()
        sign = -100.0 if dist.get_rank() == 1 else 1.0
        (sign * loss_of(model(inputs(step + 5))) / 2).backward()
    one = network()
    ranks = [0, 2, 3]
    for rank in ranks:
        for step in (1, 6):
            (loss_of(one(inputs(step, rank))) / 2 / len(ranks)).backward()
    return gradient_of(model), gradient_of(one), found.rejected


@pytest.mark.parametrize("per", ["model", "bucket"])
def test_gradients_accumulate_under_no_sync(workers: Workers, per: str) -> None:
    for gradient, wanted, rejected in workers.run(accumulated, per):
        assert rejected == [1]
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def with_branches(per: Any) -> list[Tensor]:
    """Two ranks take the detour in the first step, none in the second, all in the third."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    guard(model, "coordinate-median", per=per)
    gradients = []
    for step, detours in enumerate([(0, 1), (), (0, 1, 2, 3)]):
        model.zero_grad()
        loss_of(model(inputs(step), detour=dist.get_rank() in detours)).backward()
        gradients.append(gradient_of(model))
    return gradients


@pytest.mark.parametrize("per", ["model", "bucket"])
def test_frozen_and_unused_parameters(workers: Workers, per: str) -> None:
    found = workers.run(with_branches, per)
    unused = [
        name.startswith("sometimes")
        for name, p in Branches().named_parameters()
        for _ in range(p.numel())
    ]
    for gradients in found:
        assert all(a.equal(b) for a, b in zip(gradients, found[0], strict=True))
        assert not gradients[1][unused].any()
        assert gradients[2][unused].any()


def joined(per: Any) -> tuple[list[Any], Tensor, Tensor]:
    """Rank r has 2 + r batches: at the end only rank 3 has any."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-4)
    found = guard(model, per=per)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rejected = []
    gradient = torch.zeros(0)
    with model.join():
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            loss_of(model(inputs(step))).backward()
            rejected.append(found.rejected)
            if step == 3:
                gradient = gradient_of(model)
                one = network()
                one.load_state_dict(model.module.state_dict())
                wanted = torch.zeros_like(gradient)
                for rank in (2, 3):
                    one.zero_grad()
                    loss_of(one(inputs(step, rank))).backward()
                    wanted += gradient_of(one) / 2
                torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)
            optimizer.step()
    return rejected, gradient, torch.cat([p.flatten() for p in state_of(model)])


def test_ranks_that_have_joined_are_left_out(workers: Workers) -> None:
    found = workers.run(joined, "model")
    assert found[3][0] == [[], [], [0], [0, 1], [0, 1, 2]]
    assert all(one[2].equal(found[0][2]) for one in found)


def joined_with_trimmed_mean() -> bool:
    """Fewer ranks have data, at the end, than the rule needs."""
    model = DistributedDataParallel(network())
    guard(model, "trimmed-mean(n_bad=1)")
    with model.join():
        for step in range(1 + dist.get_rank()):
            loss_of(model(inputs(step))).backward()
    return bool(torch.isfinite(gradient_of(model)).all())


def test_too_few_ranks_are_left_by_join(workers: Workers) -> None:
    assert workers.run(joined_with_trimmed_mean) == [True] * 4


def in_two_dtypes(kind: str) -> list[Tensor]:
    model: nn.Module = Known([[(5, 3)], [(7,)]])
    model.units[1].to(torch.float64)  # type: ignore[index]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    if kind == "ddp":
        model = DistributedDataParallel(model)
    found = guard(model, optimizer=optimizer if kind == "plain" else None)
    row = torch.arange(22.0) + dist.get_rank()
    if dist.get_rank() == 2:
        row[20] = torch.inf
    model(row).backward()
    optimizer.step()
    assert found.rejected == [2]
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert [grad.dtype for grad in grads] == [torch.float32, torch.float64]
    return [grad.flatten() for grad in grads]


@pytest.mark.parametrize("kind", ["ddp", "plain"])
def test_several_dtypes(workers: Workers, kind: str) -> None:
    mean = torch.arange(22.0) + 4 / 3
    for grads in workers.run(in_two_dtypes, kind):
        torch.testing.assert_close(torch.cat([g.double() for g in grads]), mean.double())


def overflowing(kind: str, bad_ranks: list[int]) -> tuple[Tensor, float, list[int]]:
    """One step with a gradient scaler, some ranks of which overflow; the parameters afterwards."""
    model: nn.Module = Known()
    found: Guard
    if kind == "ddp":
        model = DistributedDataParallel(model)
    elif kind == "fsdp":
        model = shard(model)
    found = guard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    row = torch.ones(194)
    if dist.get_rank() in bad_ranks:
        row[:] = torch.inf
    scaler.scale(model(row)).backward()
    scaler.step(optimizer)
    scaler.update()
    return torch.cat([p.flatten() for p in state_of(model)]), scaler.get_scale(), found.rejected


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_overflow(workers: Workers, kind: str) -> None:
    for parameters, scale, rejected in workers.run(overflowing, kind, [1]):
        assert rejected == [1]
        assert scale == 4.0
        assert parameters.eq(0.0).all()
    for parameters, scale, rejected in workers.run(overflowing, kind, [0, 1, 3]):
        assert rejected == [0, 1, 2, 3]
        assert scale == 2.0
        assert parameters.eq(1.0).all()


class FirstBucket:
    """The first bucket of a backward pass that fails before the last one."""

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return False

    def buffer(self) -> Tensor:
        return torch.full((40,), 1e6 * dist.get_rank())


def after_a_failure(per: Any) -> tuple[Tensor, Tensor, int, list[int], str]:
    """A step after one bucket of another step, whose other buckets do not come."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-5)
    found = guard(model, per=per)
    loss_of(model(inputs(0))).backward()
    model._comm_hooks[0][1].take(FirstBucket())  # type: ignore[attr-defined]
    model.zero_grad()
    loss_of(model(inputs(2))).backward()
    gradient = gradient_of(model)
    one = network()
    for rank in range(4):
        (loss_of(one(inputs(2, rank))) / 4).backward()
    assert len(found._last) == (1 if per == "model" else len(list(model.parameters())))
    # The wrapper does not accept further passes after a real failure, on any rank.
    hook = next(model.parameters()).register_hook(lambda _: 1 / 0)
    with contextlib.suppress(ZeroDivisionError):
        loss_of(model(inputs(1))).backward()
    hook.remove()
    message = ""
    try:
        loss_of(model(inputs(2))).backward()
    except RuntimeError as error:
        message = str(error)
    return gradient, gradient_of(one), found.n_steps, found.rejected, message


@pytest.mark.parametrize("per", ["model", "bucket"])
def test_a_backward_pass_that_fails_leaves_nothing(workers: Workers, per: str) -> None:
    for gradient, wanted, n_steps, rejected, message in workers.run(after_a_failure, per):
        assert n_steps == 2
        assert not rejected
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)
        assert message.startswith("Expected to have finished reduction")


def evaluated(kind: str) -> tuple[int, list[int]]:
    """Rank 0 reads the guard and, where the wrapper allows it, the model by itself."""
    model: nn.Module = network()
    if kind == "ddp":
        model = DistributedDataParallel(model)
    else:
        fully_shard(model)
    found = guard(model, check_every=2)
    for step in range(4):
        model.zero_grad()
        loss_of(model(inputs(step))).backward()
        if dist.get_rank() == 0:
            assert found.rejected == []
            assert found.suspects() == []
            found.state_dict()
        if kind == "fsdp" or dist.get_rank() == 0:
            model.eval()
            with torch.no_grad():
                model(inputs(step))
            model.train()
    return found.n_steps, found.counts.tolist()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_one_rank_may_look_by_itself(workers: Workers, kind: str) -> None:
    assert workers.run(evaluated, kind) == [(4, [0, 0, 0, 0])] * 4


class WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def loss(self, x: Tensor) -> Tensor:
        return loss_of(self.body(x))


def by_other_methods(kind: str) -> tuple[int, int]:
    """Steps whose forward pass is not one of the whole model, or is made again."""
    from torch.distributed.fsdp import register_fsdp_forward_method
    from torch.utils.checkpoint import checkpoint

    model = WithLoss()
    for layer in model.body:  # type: ignore[attr-defined]
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    register_fsdp_forward_method(model, "loss")
    found = guard(model)
    for step in range(3):
        if kind == "method":
            model.loss(inputs(step)).backward()
        else:
            loss = checkpoint(model.loss, inputs(step).requires_grad_(), use_reentrant=False)
            assert isinstance(loss, Tensor)
            loss.backward()
    return found.n_steps, len(found._last)


@pytest.mark.parametrize("kind", ["method", "checkpoint"])
def test_steps_without_a_forward_pass_of_the_whole_model(workers: Workers, kind: str) -> None:
    assert workers.run(by_other_methods, kind) == [(3, 3)] * 4


def compiled(order: str) -> tuple[list[int], bool]:
    """Two steps of a compiled model, with NaN on rank 1."""
    torch.manual_seed(0)
    inner = nn.Linear(4, 3)
    if order == "model":
        model: Any = DistributedDataParallel(torch.compile(inner, backend="eager"))
        found = guard(model)
    else:
        wrapped = DistributedDataParallel(inner)
        found, model = guard(wrapped), torch.compile(wrapped, backend="eager")
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.full((2, 4), torch.nan) if dist.get_rank() == 1 else torch.ones(2, 4)
        model(x).sum().backward()
        optimizer.step()
    return found.counts.tolist(), bool(torch.isfinite(inner.weight).all())


@pytest.mark.parametrize("order", ["model", "wrapper"])
def test_compiled_models_are_guarded(workers: Workers, order: str) -> None:
    assert workers.run(compiled, order, n=3) == [([0, 2, 0], True)] * 3
