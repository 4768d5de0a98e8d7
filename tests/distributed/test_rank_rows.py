"""A row per rank: equal to `MicroBatches` in one process, and errors that all ranks share."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.distributed import RankRows, Ranks
from holdfast.errors import NonFiniteRowsError
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches, Source
from tests.distributed.workers import Failure, Workers

N = 4


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        return make()


def perceptron() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))


def with_statistics() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))


def with_noise() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 30), nn.Dropout(0.5), nn.Linear(30, 3)))


class Sums(nn.Module):
    """A model that `torch.func.vmap` cannot run."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(x)
        return found * float(x.sum().item() > -1e9)


def sums() -> nn.Module:
    return seeded(Sums)


MODELS = {"mlp": perceptron, "batch norm": with_statistics, "no vmap": sums}
LOSSES: dict[str, nn.Module] = {
    "mean": nn.CrossEntropyLoss(),
    "sum": nn.CrossEntropyLoss(reduction="sum"),
}


def batches(n_steps: int, n_rows: int) -> list[tuple[Tensor, Tensor]]:
    draw = stream(0, "batches")
    return [
        (
            torch.randn(5 * n_rows, 6, generator=draw),
            torch.randint(3, (5 * n_rows,), generator=draw),
        )
        for _ in range(n_steps)
    ]


def trained(model: nn.Module, source: Source, n_rows: int) -> dict[str, Any]:
    """Rows, losses, parameters and buffers after three robust steps."""
    optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), "geometric-median")
    rows, losses = [], []
    for x, y in batches(3, n_rows):
        found = source(x, y)
        rows.append(torch.as_tensor(found).clone())
        losses.append(source.losses.clone())
        optimizer.zero_grad()
        optimizer.step(found)
    return {"rows": rows, "losses": losses, "state": list(model.state_dict().values())}


def on_ranks(model: str, loss: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    network = MODELS[model]()
    ranks = Ranks({"test": "rows"})
    source = RankRows(network, LOSSES[loss], ranks)
    found = trained(network, source, ranks.n)
    assert source.samples_of(1).tolist() == list(range(5, 10))
    assert len(source.seconds) == ranks.n
    ranks.check_same(network.parameters())
    return found


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [3, N])
def test_rows_losses_and_buffers_are_those_of_one_process(
    workers: Workers, model: str, loss: str, n: int
) -> None:
    network = MODELS[model]()
    one = MicroBatches(network, LOSSES[loss], n_rows=n)
    expected = trained(network, one, n)
    found = workers.run(on_ranks, model, loss, n=n)
    for other in found[1:]:  # bit for bit
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)
    # A bias before BatchNorm has the gradient 0, of which rounding leaves 1e-6.
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-5)


def noisy() -> tuple[Tensor, Tensor]:
    torch.manual_seed(7)
    source = RankRows(with_noise(), cross_entropy, Ranks({}))
    x, y = batches(1, 1)[0]
    whole = x.repeat(N, 1), y.repeat(N)
    return torch.as_tensor(source(*whole)).clone(), torch.as_tensor(source(*whole)).clone()


def test_every_rank_and_step_has_its_own_noise(workers: Workers) -> None:
    found = workers.run(noisy)
    first, second = found[0]
    assert torch.equal(found[1][0], first)
    assert len(torch.unique(torch.cat([first, second]), dim=0)) == 2 * N


def with_losses(n_lost: int) -> Any:
    model = with_statistics()
    before = [value.clone() for value in model.state_dict().values()]
    source = RankRows(model, cross_entropy, Ranks({}))
    x, y = batches(1, N)[0]
    x[: 5 * n_lost] = torch.nan
    try:
        rows = torch.as_tensor(source(x, y))
    except NonFiniteRowsError as error:
        assert all(
            torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True)
        )
        return str(error)
    assert all(bool(torch.isfinite(value).all()) for value in model.state_dict().values())
    return torch.isfinite(rows).all(1).tolist()


def test_a_loss_that_is_not_finite_costs_its_row_and_most_of_them_the_step(
    workers: Workers,
) -> None:
    assert workers.run(with_losses, 1) == [[False, True, True, True]] * N
    (message,) = set(workers.run(with_losses, 3))
    assert "got 3 of 4 with NaN or infinity" in message


class Broken(nn.Module):
    """A model that cannot be run on rank 2."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.linear, self.rank = nn.Linear(6, 3), rank

    def forward(self, x: Tensor) -> Tensor:
        if self.rank == 2 and len(x) > 3:
            raise RuntimeError("no such kernel")
        found: Tensor = self.linear(x)
        return found


def broken() -> None:
    ranks = Ranks({})
    RankRows(Broken(ranks.rank), cross_entropy, ranks)(*batches(1, N)[0])


def test_an_error_on_one_rank_is_raised_on_all(workers: Workers) -> None:
    found = workers.outcomes(broken)
    assert all(isinstance(one, Failure) and one.kind == "RuntimeError" for one in found)
    assert found[2].message == "no such kernel"
    assert found[0].message.startswith("no such kernel (on rank 2 (")


def questions() -> tuple[Any, ...]:
    ranks = Ranks({"same": 1}, device="cpu")
    return (
        ranks.is_first,
        ranks.any(ranks.rank == 2),
        ranks.any(False),
        ranks.from_first({"rank": ranks.rank}),
        ranks.together(lambda: ranks.rank),
        ranks.gather(torch.tensor([ranks.rank]))[:, 0].tolist(),
        [member.rank for member in ranks.members],
    )


def test_ranks_answer_together(workers: Workers) -> None:
    for rank, found in enumerate(workers.run(questions, n=3)):
        assert found == (rank == 0, True, False, {"rank": 0}, rank, [0, 1, 2], [0, 1, 2])


def different(what: str) -> None:
    if what == "common":
        rank = Ranks({}).rank
        Ranks({"configuration": "b" if rank == 1 else "a"})
    ranks = Ranks({})
    ranks.check_same([torch.tensor([0.0, 1e-30 if ranks.rank == 1 else 0.0])])


@pytest.mark.parametrize("what", ["common", "parameters"])
def test_ranks_that_differ_are_named_on_all(workers: Workers, what: str) -> None:
    found = workers.outcomes(different, what)
    assert {one.kind for one in found} == {"RanksDifferError"}
    assert all("rank 1 (" in one.message for one in found)
    wanted = "`configuration` must be the same on all ranks, got b" if what == "common" else ""
    assert wanted in found[0].message


def one_is_absent() -> None:
    if dist.get_rank() != 1:
        Ranks({}, timeout=timedelta(seconds=2))


def test_a_rank_that_does_not_come_is_named(workers: Workers) -> None:
    found = workers.outcomes(one_is_absent)
    for rank in (0, 2, 3):
        assert found[rank].kind == "RankFailedError"
        assert found[rank].message == "rank 1 did not call `Ranks` in 2 seconds."


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="`Ranks` must be made after init_process_group"):
        Ranks({})
    with pytest.raises(ValueError, match=r"`ranks` must be a Ranks, got int\."):
        RankRows(perceptron(), cross_entropy, 4)  # type: ignore[arg-type]
