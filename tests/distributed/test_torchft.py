"""The real manager of torchft with a real lighthouse: replicas that take part, and nobody else."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed import ReduceOp
from torch.nn.functional import cross_entropy

from holdfast.aggregators import as_rule
from holdfast.distributed import RobustManager
from holdfast.seeds import stream

# torchft logs by a deprecated method, in threads whose errors it takes for those of the step.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated"),
]
SECONDS = timedelta(seconds=15)
N = 4


def row(i: int) -> Tensor:
    honest = torch.tensor([1.0, 2.0, 3.0]) + 0.1 * torch.randn(3, generator=stream(i, "row"))
    return -100 * honest if i == 1 else honest


class NoManager:
    """What is asked before a manager is needed."""

    allreduce = allgather = staticmethod(lambda: None)


@pytest.fixture
def torchft() -> Any:
    """The package, with threads of one process as replicas, as in its own tests."""
    return pytest.importorskip("torchft")


@pytest.fixture
def lighthouse(torchft: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The real server, which waits for as many replicas as the test says, by default for all."""
    from torchft.coordination import LighthouseServer

    n = getattr(request, "param", N)
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=n, join_timeout_ms=1000)
    yield server
    server.shutdown()


@contextmanager
def replica(
    lighthouse: Any, i: int, rule: str, *, min_size: int, **options: Any
) -> Iterator[tuple[RobustManager, dict[str, Any]]]:
    """One replica with its manager, and a state that torchft hands to those that recover."""
    from torchft import Manager
    from torchft.process_group import ProcessGroupGloo

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pg, state = ProcessGroupGloo(timeout=SECONDS), {"seen": i}
    manager = Manager(
        pg=pg,
        min_replica_size=min_size,
        load_state_dict=state.update,
        state_dict=lambda: dict(state),
        replica_id=f"replica_{i}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse.address(),
        hostname="127.0.0.1",
        timeout=SECONDS,
        quorum_timeout=SECONDS,
        **{"init_sync": False, **options},
    )
    try:
        yield RobustManager(manager, pg, rule), state
    finally:
        manager.shutdown(wait=False)


def on_replicas(work: Callable[[int], Any], n: int = N) -> list[Any]:
    with ThreadPoolExecutor(n) as executor:
        futures = [executor.submit(work, i) for i in range(n)]
        return [future.result(60) for future in futures]


def expected(rule: str, members: list[int]) -> Tensor:
    return as_rule(rule).aggregate(torch.stack([row(i) for i in members])).vector


@pytest.mark.parametrize("op", [ReduceOp.AVG, ReduceOp.SUM])
def test_every_replica_gets_the_aggregate_and_knows_who_was_left_out(
    lighthouse: Any, op: ReduceOp.RedOpType
) -> None:
    def work(i: int) -> tuple[Tensor, list[int], bool, int]:
        with replica(lighthouse, i, "radius-filter", min_size=N) as (manager, _):
            manager.start_quorum()
            tensor = row(i)
            work = manager.allreduce(tensor, reduce_op=op)
            assert work.wait()
            assert work.get_future().value() is tensor
            return tensor, manager.rejected, manager.should_commit(), manager.participating_rank()

    found = on_replicas(work)
    factor = 1 if op == ReduceOp.AVG else N
    for tensor, rejected, is_committed, _ in found:
        assert torch.equal(tensor, found[0][0])
        assert rejected == [found[1][3]]
        assert is_committed
    torch.testing.assert_close(found[0][0], factor * expected("radius-filter", [0, 1, 2, 3]))


@pytest.mark.parametrize("rule", ["mean", "geometric-median", "coordinate-median"])
def test_a_spare_is_no_row(lighthouse: Any, rule: str) -> None:
    from torchft.manager import WorldSizeMode

    def work(i: int) -> tuple[Tensor, bool]:
        mode = WorldSizeMode.FIXED_WITH_SPARES
        options = {"min_size": N - 1, "world_size_mode": mode}
        with replica(lighthouse, i, rule, **options) as (manager, _):
            manager.start_quorum()
            tensor = row(i)
            manager.allreduce(tensor)
            assert manager.should_commit()
            return tensor, manager.is_participating()

    found = on_replicas(work)
    members = [i for i, (_, is_participating) in enumerate(found) if is_participating]
    assert len(members) == N - 1
    for tensor, _ in found:
        torch.testing.assert_close(tensor, expected(rule, members))


@pytest.mark.parametrize("lighthouse", [3], indirect=True)
def test_a_replica_that_recovers_is_no_row_and_one_that_leaves_is_none(lighthouse: Any) -> None:
    """Replica 3 comes at step 2, takes part from the next step on, and leaves again."""
    n_steps, joins, has_joined = 40, Event(), Event()

    def work(i: int) -> list[tuple[int, int, Tensor, bool]]:
        seen = []
        if i == 3:
            joins.wait(30)
        with replica(lighthouse, i, "geometric-median", min_size=2) as (manager, _):
            while manager.current_step() < n_steps:
                manager.start_quorum()
                tensor = row(i)
                manager.allreduce(tensor)
                size, is_in = manager._pg.size(), manager.is_participating()
                if manager.should_commit():
                    seen.append((manager.current_step(), size, tensor, is_in))
                if i == 3 and len(seen) == 4:
                    has_joined.set()
                    return seen
                if manager.current_step() == 2:
                    joins.set()
                if manager.current_step() >= n_steps - 10:  # not before it was there
                    assert has_joined.wait(30)
                time.sleep(0.05)
        return seen

    found = on_replicas(work)
    late = found[3]
    assert [is_in for *_, is_in in late] == [False, True, True, True]
    three, four = (
        expected("geometric-median", [0, 1, 2]),
        expected("geometric-median", [0, 1, 2, 3]),
    )
    step, size, tensor, _ = late[0]
    assert (step > 2, size) == (True, N)
    torch.testing.assert_close(tensor, three)  # it gets the aggregate of the others
    torch.testing.assert_close(late[1][2], four)
    for steps in found[:3]:
        by_step = {step: tensor for step, _, tensor, _ in steps}
        torch.testing.assert_close(by_step[late[0][0]], three)
        torch.testing.assert_close(by_step[late[1][0]], four)
        assert steps[-1][1] == 3  # the quorum without it
        torch.testing.assert_close(steps[-1][2], three)


@pytest.mark.parametrize("lighthouse", [2], indirect=True)
@pytest.mark.parametrize("rule", ["krum(n_bad=1)", "radius-filter"])
def test_too_few_or_too_bad_rows_discard_the_step(lighthouse: Any, rule: str) -> None:
    def work(i: int) -> tuple[bool, str]:
        with replica(lighthouse, i, rule, min_size=2) as (manager, _):
            manager.start_quorum()
            manager.allreduce(torch.full((3,), torch.nan))
            reason = str(manager.errored())
            manager.allreduce(torch.ones(3))  # after an error nothing is sent any more
            return manager.should_commit(), reason

    for is_committed, reason in on_replicas(work, 2):
        assert not is_committed
        assert "`rows` must" in reason


def test_with_the_wrappers_of_torchft(torchft: Any, lighthouse: Any) -> None:
    """A replica whose gradients are garbage: the training is that of the other three."""

    def work(i: int) -> list[Tensor]:
        model = nn.Linear(4, 3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        with replica(lighthouse, i, "radius-filter", min_size=N) as (manager, _):
            wrapped = torchft.DistributedDataParallel(manager, model)
            optimizer = torchft.Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.5))
            draw = stream(i, "data")
            for _ in range(5):
                x = torch.randn(30, 4, generator=draw)
                loss = cross_entropy(wrapped(x), x[:, :3].argmax(1))
                optimizer.zero_grad()
                (loss * (-100.0 if i == 1 else 1.0)).backward()
                optimizer.step()
            assert manager.rejected == [1]
            assert manager.current_step() == 5
        return [parameter.detach() for parameter in model.parameters()]

    found = on_replicas(work)
    for parameters in found[1:]:
        assert all(map(torch.equal, parameters, found[0]))
    draw = stream(9, "data")
    x = torch.randn(200, 4, generator=draw)
    weight, bias = found[0]
    accuracy = float(((x @ weight.T + bias).argmax(1) == x[:, :3].argmax(1)).float().mean())
    assert accuracy > 0.8


def test_bad_input() -> None:
    usable = NoManager()
    with pytest.raises(ValueError, match=r"`manager` must be torchft's, with `allreduce`, got int"):
        RobustManager(3, usable)
    with pytest.raises(ValueError, match=r"`pg` must be torchft's, with `allgather`, got str"):
        RobustManager(usable, "gloo")
    with pytest.raises(ValueError, match=r"`rule` must need only rows, got Bucketing"):
        RobustManager(usable, usable, "bucketing(bucket_size=2) | mean")
    robust = RobustManager(usable, usable)
    for arguments, name in (
        ({"should_quantize": True}, "should_quantize"),
        ({"reduce_op": ReduceOp.MAX}, "reduce_op"),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            robust.allreduce(torch.ones(2), **arguments)
    with pytest.raises(ValueError, match=r"`tensor` must have a floating dtype, got torch.int64"):
        robust.allreduce(torch.arange(2))
