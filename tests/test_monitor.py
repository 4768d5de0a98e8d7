"""Suspicion over time: in real training with unequal data, on every fault, and on its own state."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from holdfast.aggregators import RadiusFilter
from holdfast.lab.data import load
from holdfast.lab.models import mlp
from holdfast.lab.partitions import Dirichlet
from holdfast.monitor import Monitor, Suspect
from holdfast.seeds import stream

N, BAD = 4, 1


def train(
    n_steps: int,
    fault: Callable[[Tensor], Tensor] = lambda row: row,
    *,
    begins: int = 0,
    alpha: float | None = None,
) -> tuple[list[tuple[int, Suspect]], Monitor]:
    """An MLP on images, one row of 32 samples for each of 4 ranks; rank 1 has the fault.

    With `alpha`, the classes of the ranks' data differ, by a Dirichlet law. Returns the suspects
    with their steps, and the monitor.
    """
    data = load("fashion-mnist-slice")
    inputs, labels = data.normalize(data.train.scaled()), data.train.labels
    draw = stream(0, "batches")
    parts = list(torch.randperm(len(labels), generator=draw).chunk(N))
    if alpha is not None:
        parts = Dirichlet(alpha=alpha).divide(labels, N, generator=stream(0, "partition"))
    model = mlp(generator=stream(0, "model"))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    found: list[tuple[int, Suspect]] = []
    monitor = Monitor(N, on_suspect=lambda suspect: found.append((monitor.n_steps, suspect)))
    rule = RadiusFilter()
    for step in range(n_steps):
        rows = []
        for part in parts:
            batch = part[torch.randint(len(part), (32,), generator=draw)]
            loss = cross_entropy(model(inputs[batch]), labels[batch])
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
        if step >= begins:
            rows[BAD] = fault(rows[BAD])
        matrix = torch.stack(rows)
        aggregate = rule.aggregate(matrix)
        monitor.observe(matrix.double() @ matrix.double().T, aggregate.rejected)
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, piece in zip(parameters, aggregate.vector.split(sizes), strict=True):
            parameter.grad = piece.view_as(parameter)
        optimizer.step()
    return found, monitor


def noise(row: Tensor) -> Tensor:
    return row + 10.0 * torch.randn(row.shape, generator=stream(3, "noise"))


def test_nobody_is_suspect_in_a_thousand_clean_steps_with_unequal_data() -> None:
    found, monitor = train(1000, alpha=0.5)
    assert found == []
    assert monitor.n_steps == 1000


BLUNT: dict[str, Callable[[Tensor], Tensor]] = {
    "times -100": lambda row: -100 * row,
    "times 50": lambda row: 50 * row,
    "noise": noise,
    "NaN": lambda row: row * torch.nan,
}


@pytest.mark.parametrize("name", BLUNT)
def test_a_blunt_fault_is_named_within_twenty_steps(name: str) -> None:
    found, _ = train(65, BLUNT[name], begins=40, alpha=0.5)
    (step, suspect), *others = found
    assert others == []
    assert suspect.row == BAD
    assert 40 < step <= 60
    assert suspect.reason.startswith("rejected")


@pytest.mark.parametrize(
    ("factor", "reason"), [(1.5, "times as long"), (-1.0, "cosine"), (0.0, "times as long")]
)
def test_a_fault_that_no_rule_rejects_is_named_within_two_hundred_steps(
    factor: float, reason: str
) -> None:
    found, monitor = train(510, lambda row: factor * row, begins=310)
    assert monitor.counts[BAD] < 20
    (step, suspect), *_ = found
    assert suspect.row == BAD
    assert 310 < step <= 510
    assert reason in suspect.reason
    assert [row for _, row in found if row.row != BAD] == []


def rows_of(step: int, n: int = 5) -> Tensor:
    return 1.0 + torch.randn(n, 30, generator=stream(step, "rows"), dtype=torch.float64)


def observe(monitor: Monitor, steps: range, *, scale: float = 1.0) -> None:
    for step in steps:
        rows = rows_of(step, monitor.n)
        rows[2] *= scale
        rejected = torch.zeros(monitor.n, dtype=torch.bool)
        rejected[0] = step % 3 == 0
        monitor.observe(rows @ rows.T, rejected)


def test_a_resumed_watch_is_an_uninterrupted_one() -> None:
    whole, first, second = Monitor(5, window=40), Monitor(5, window=40), Monitor(5, window=40)
    observe(whole, range(150))
    observe(whole, range(150, 200), scale=2.0)
    observe(first, range(150))
    observe(first, range(150, 170), scale=2.0)
    second.load_state_dict(first.state_dict())
    observe(first, range(170, 180))  # what happens afterwards does not change the saved state
    observe(second, range(170, 200), scale=2.0)
    assert second.suspects() == whole.suspects() == [Suspect(2, whole.suspects()[0].reason)]
    assert second.counts.equal(whole.counts)
    assert second.n_steps == whole.n_steps == 200
    one, other = second.state_dict(), whole.state_dict()
    assert one.pop("suspects") == other.pop("suspects")
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_suspect_is_told_once_and_forgotten_when_the_fault_ends() -> None:
    told: list[Suspect] = []
    monitor = Monitor(5, window=40, on_suspect=told.append)
    observe(monitor, range(150))
    observe(monitor, range(150, 170), scale=3.0)
    assert [suspect.row for suspect in told] == [2]
    observe(monitor, range(170, 600))
    assert monitor.suspects() == []


def test_rows_keep_their_names_when_they_change_places() -> None:
    order = torch.tensor([3, 0, 4, 1, 2])
    one, other = Monitor(5, window=40), Monitor(5, window=40)
    for step in range(130):
        rows = rows_of(step)
        rows[2] *= 1.0 if step < 100 else -1.0
        rejected = torch.rand(5, generator=stream(step, "rejected")) < 0.1
        one.observe(rows @ rows.T, rejected)
        shuffled = rows[order]
        other.observe(shuffled @ shuffled.T, rejected[order])
    assert [suspect.row for suspect in one.suspects()] == [2]
    assert [int(order[suspect.row]) for suspect in other.suspects()] == [2]
    assert one.counts[order].equal(other.counts)


def test_the_ratio_is_the_distance_in_majority_radii() -> None:
    monitor = Monitor(4)
    rows = torch.tensor([[0.0], [1.0], [-1.0], [7.0]], dtype=torch.float64) + 3.0
    monitor.observe(rows @ rows.T, torch.zeros(4, dtype=torch.bool))
    torch.testing.assert_close(monitor.ratios, torch.tensor([0.0, 1, 1, 7], dtype=torch.float64))


def test_steps_without_a_figure_are_passed_over() -> None:
    monitor = Monitor(3)
    for products in (torch.zeros(3, 3), torch.full((3, 3), torch.nan)):
        monitor.observe(products, torch.tensor([True, True, True]))
    assert monitor.n_steps == 2
    assert monitor.suspects() == []
    assert monitor.ratios.isnan().all()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="`n` must be a whole number of at least 1, got 0"):
        Monitor(0)
    with pytest.raises(ValueError, match="`window` must be a whole number of at least 20"):
        Monitor(3, window=5)
    with pytest.raises(ValueError, match="`on_suspect` must be a function of a Suspect, got int"):
        Monitor(3, on_suspect=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`products` must have shape \(3, 3\), got \(2, 2\)"):
        Monitor(3).observe(torch.eye(2), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="`mask` must be a bool tensor"):
        Monitor(3).observe(torch.eye(3), torch.zeros(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="`state` must have 3 rows and half a window of 100"):
        Monitor(3).load_state_dict(Monitor(4).state_dict())
    with pytest.raises(ValueError, match="`state` must be a state of Monitor, got dict"):
        Monitor(3).load_state_dict({})


def test_a_row_counts_the_steps_in_which_it_takes_part() -> None:
    """Twelve rows, a random half of which takes part: as if each were watched at its own steps."""
    monitor, rest = Monitor(12, window=40), torch.Generator().manual_seed(0)
    n_taken = torch.zeros(12, dtype=torch.int64)
    for step in range(400):
        rows = torch.randperm(12, generator=rest)[:6].tolist()
        matrix = rows_of(step, 12)[rows]
        # Row 5 becomes longer, by less than a rule would reject.
        matrix[[row == 5 for row in rows]] *= 1.0 if step < 250 else 2.0
        monitor.observe(matrix @ matrix.T, torch.zeros(6, dtype=torch.bool), rows=rows)
        n_taken[rows] += 1
    assert monitor.n_steps == 400
    assert monitor.state_dict()["n_taken"].equal(n_taken)
    assert [suspect.row for suspect in monitor.suspects()] == [5]


def test_rejections_count_among_the_steps_of_the_row() -> None:
    monitor = Monitor(3)
    for step in range(40):  # row 2 takes part in every fourth step, and is always rejected
        rows = [0, 1, 2] if step % 4 == 0 else [0, 1]
        rejected = torch.tensor([row == 2 for row in rows])
        monitor.observe(torch.eye(len(rows)), rejected, rows=rows)
    assert monitor.suspects() == [Suspect(2, "rejected in 10 of the last 10 steps")]
    assert monitor.counts.tolist() == [0, 0, 10]


def test_a_monitor_that_has_grown_is_one_of_that_size() -> None:
    grown, whole = Monitor(2, window=40), Monitor(5, window=40)
    for step in range(60):
        if step == 20:
            grown.grow(5)
        rows = [0, 1] if step < 20 else [0, 1, 2, 3, 4]
        matrix = rows_of(step)[rows]
        for monitor in (grown, whole):
            monitor.observe(matrix @ matrix.T, torch.zeros(len(rows), dtype=torch.bool), rows=rows)
    torch.testing.assert_close(grown.state_dict(), whole.state_dict(), rtol=0, atol=0)
    grown.load_state_dict(whole.state_dict())


@pytest.mark.parametrize("rows", [[0, 0], [0, 3], [-1, 0]])
def test_rows_that_are_not_there_are_refused(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="different numbers below 3"):
        Monitor(3).observe(torch.eye(2), torch.zeros(2, dtype=torch.bool), rows=rows)
    with pytest.raises(ValueError, match="whole number of at least 3"):
        Monitor(3).grow(2)
