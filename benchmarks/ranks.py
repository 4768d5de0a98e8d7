"""What one rank measures; `benchmarks.hosts` runs these functions in processes side by side."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.hosts import bytes_passed
from benchmarks.peak_memory import extra_bytes
from holdfast.aggregators import as_rule
from holdfast.distributed import guard
from holdfast.distributed._collectives import GroupHolders
from holdfast.distributed._fsdp import UnitReduceScatter
from holdfast.distributed._guard import Guard
from holdfast.distributed._modes import Gathered, Sharded
from holdfast.distributed._roll_call import RollCall
from holdfast.geometry import DenseRows
from holdfast.lab.models import models
from holdfast.monitor import Monitor
from holdfast.seeds import stream

CPU = torch.device("cpu")
Candidates = Mapping[str, Callable[[], object]]


def take_turns(
    candidates: Candidates,
    n_rounds: int,
    n_calls: int = 1,
    prepare: Callable[[], object] = lambda: None,
) -> dict[str, float]:
    """The least seconds per call of each candidate, of the rank that takes longest.

    After one round to warm up, candidates take turns; all ranks begin each turn together, after
    they have called `prepare`.
    """
    best = dict.fromkeys(candidates, float("inf"))
    for round_ in range(n_rounds + 1):
        for name, candidate in candidates.items():
            prepare()
            dist.barrier()
            started = time.perf_counter()
            for _ in range(n_calls):
                candidate()
            elapsed = torch.tensor((time.perf_counter() - started) / n_calls)
            dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
            if round_ > 0:
                best[name] = min(best[name], float(elapsed))
    return best


def bytes_sent(call: Callable[[], object], n_calls: int) -> int:
    """The bytes that this rank sends per call."""
    dist.barrier()
    before, _ = bytes_passed()
    for _ in range(n_calls):
        call()
    after, _ = bytes_passed()
    return (after - before) // n_calls


def vector(d: int) -> Tensor:
    """This rank's gradient: a part common to all ranks, and noise as long."""
    own = torch.randn(d, generator=stream(0, "own", dist.get_rank()))
    return own + torch.randn(d, generator=stream(0, "common"))


def bare_guard(rule: str, mode_name: str = "sharded") -> Guard:
    """A guard without a model."""
    group = dist.distributed_c10d._get_default_group()
    roll = RollCall(group, CPU, {}, timedelta(seconds=60), call="bare_guard")
    mode = Sharded(group, group, CPU) if mode_name == "sharded" else Gathered(group, None, CPU)
    return Guard(as_rule(rule), mode, roll, roll.members, window=200, on_suspect=None)


def aggregation(rule: str, gradient: Tensor, mode: str = "sharded") -> Callable[[], Tensor]:
    """The vectors of all ranks by the rule, as the guard of a model does it.

    Like an all-reduce, it may write the result to the vector.
    """
    found = bare_guard(rule, mode)

    def call() -> Tensor:
        found.begin_step()
        sent = found.mode.send(gradient)
        columns = found.reduce([sent.wait()], size=sent.size, zero_is_absent=True)
        whole = found.mode.whole(columns, sent)
        found.end_step()
        return whole

    return call


def aggregations(d: int, n_rounds: int, rules: list[str]) -> dict[str, float]:
    """Seconds of an all-reduce and of guarded aggregations of the same vector."""
    own = vector(d)
    gradient = own.clone()
    candidates: dict[str, Callable[[], object]] = {"all_reduce": lambda: dist.all_reduce(gradient)}
    candidates |= {rule: aggregation(rule, gradient) for rule in rules}
    # A result in the place of the vector would be the same on all ranks: rows that are equal.
    return take_turns(candidates, n_rounds, prepare=lambda: gradient.copy_(own))


def parts_of_aggregation(d: int, n_rounds: int) -> dict[str, float]:
    """Seconds of the parts of a guarded aggregation, and of the all-reduce."""
    group = dist.distributed_c10d._get_default_group()
    mode, gradient = Sharded(group, group, CPU), vector(d)
    sent = mode.send(gradient)
    rows = sent.wait()
    total, n = gradient.clone(), dist.get_world_size()
    alone, held = DenseRows(rows), DenseRows(rows, holders=GroupHolders(group, CPU), n_columns=d)
    weights = torch.full((n,), 1 / n, dtype=torch.float64)
    columns = alone.combine(weights)
    products = held.gram().for_all(n)
    rule, roll = as_rule("radius-filter"), bare_guard("mean").roll
    monitor = Monitor(n)
    nobody = torch.zeros(n, dtype=torch.bool)
    for _ in range(2 * monitor.window):  # as it is after some time
        monitor.observe(products, nobody)

    def both_ways() -> None:
        sent = mode.send(gradient)
        sent.wait()
        mode.whole(columns, sent)

    return take_turns(
        {
            "all_reduce": lambda: dist.all_reduce(total),
            "both_ways": both_ways,
            "gram": alone.gram,
            "sum_of_products": lambda: held.holders.sum(products),
            "combine": lambda: alone.combine(weights),
            "rule": lambda: rule.aggregate(held),
            "watch": lambda: monitor.observe(products, nobody),
            "heartbeat": lambda: roll.beat(0),
        },
        n_rounds,
    )


class SingleUnit:
    """Steps of one unit each, outside of a backward pass."""

    def __init__(self, found: Guard) -> None:
        self._guard = found

    @contextmanager
    def unit(self) -> Iterator[Guard]:
        """The guard, for the collectives of the unit."""
        self._guard.begin_step()
        yield self._guard
        self._guard.end_step()


def reduce_scatters(d: int, n_rounds: int, rules: list[str]) -> dict[str, float]:
    """Seconds of a reduce-scatter, as of a unit of `fully_shard`, and of guarded ones."""
    n, group = dist.get_world_size(), dist.distributed_c10d._get_default_group()
    d -= d % n
    gradient, shard = vector(d), torch.empty(d // n)
    plain: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def guarded(rule: str) -> Callable[[], object]:
        scatter = UnitReduceScatter(SingleUnit(bare_guard(rule)))  # type: ignore[arg-type]
        return lambda: scatter(shard, gradient, group, dist.ReduceOp.AVG)

    candidates: dict[str, Callable[[], object]] = {
        "reduce_scatter": lambda: plain(shard, gradient, op=dist.ReduceOp.SUM)
    }
    return take_turns(candidates | {rule: guarded(rule) for rule in rules}, n_rounds)


def training_step(model: nn.Module, batch: int) -> Callable[[], None]:
    """A step of SGD; the n-th step of every model sees the same images and the same dropout."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    side, channels = (28, 1) if batch == LENET_BATCH else (32, 3)
    rank, steps = dist.get_rank(), iter(range(10**9))
    generator = stream(0, "images", rank)
    images = torch.randn(batch, channels, side, side, generator=generator)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,), generator=generator)

    def step() -> None:
        torch.default_generator.manual_seed(1000 * next(steps) + rank)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


LENET_BATCH, RESNET_BATCH = 64, 16
BATCHES = {"lenet": LENET_BATCH, "resnet-18": RESNET_BATCH}


def wrapped(name: str, per: str) -> tuple[nn.Module, Guard | None]:
    """The model in DistributedDataParallel, guarded unless `per` is "plain"."""
    model = models[name](generator=stream(0, "model")).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ddp = DistributedDataParallel(model)
    return ddp, None if per == "plain" else guard(ddp, per=per)  # type: ignore[arg-type]


def ddp_steps(name: str, n_rounds: int, n_calls: int, kinds: list[str]) -> dict[str, Any]:
    """Seconds and bytes of steps, and whether the parameters of all kinds end up equal."""
    found = {per: wrapped(name, per) for per in ["plain", *kinds]}
    wrappers = {per: model for per, (model, _) in found.items()}
    steps = {per: training_step(model, BATCHES[name]) for per, model in wrappers.items()}
    for step in steps.values():
        step()
    first = {per: difference(wrappers["plain"], wrappers[per]) for per in kinds}
    seconds = take_turns(steps, n_rounds, n_calls)
    sent = {per: bytes_sent(step, 2) for per, step in steps.items()}
    last = {per: difference(wrappers["plain"], wrappers[per]) for per in kinds}
    left_out = {per: int(one.counts.sum()) for per, (_, one) in found.items() if one is not None}
    return {"seconds": seconds, "sent": sent, "first": first, "last": last, "left_out": left_out}


def difference(one: nn.Module, other: nn.Module) -> float:
    """The largest difference of a parameter, over the largest parameter."""
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    largest = max(float(p.detach().abs().max()) for p, _ in pairs)
    return max(float((p - q).detach().abs().max()) for p, q in pairs) / largest


def memory(d: int, rule: str, mode: str) -> int:
    """The most bytes that an aggregation of vectors [d] holds beyond them, at the first call."""
    aggregation(rule, vector(10_000), mode)()  # libraries allocate their own buffers at first use
    call = aggregation(rule, vector(d), mode)
    dist.barrier()
    return extra_bytes(call)


def traffic(d: int, rule: str) -> dict[str, int]:
    """The bytes that this rank sends for an all-reduce and for an aggregation of vectors [d]."""
    own = vector(d)
    gradient = own.clone()
    call = aggregation(rule, gradient)
    call()

    def again() -> None:
        gradient.copy_(own)
        call()

    return {
        "all_reduce": bytes_sent(lambda: dist.all_reduce(gradient), 3),
        "guarded": bytes_sent(again, 3),
    }
