"""Partitions divide all samples by their distributions; batches iterate over each client's own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.lab.partitions import Dirichlet, Partition, Shards, Shuffled, partitions
from holdfast.lab.training import Batches
from holdfast.seeds import stream

PARTITIONS = [
    Shuffled(),
    Shards(n_shards=80),
    Shards(n_shards=10),
    Dirichlet(alpha=0.5),
    Dirichlet(alpha=0.05),
    Dirichlet(alpha=100.0),
]
every_partition = pytest.mark.parametrize("partition", PARTITIONS, ids=str)


def labels_of(n: int, seed: int = 0) -> Tensor:
    return torch.randint(10, (n,), generator=stream(seed, "labels"))


def divide(partition: Partition, labels: Tensor, n_rows: int, seed: int = 0) -> list[Tensor]:
    return partition.divide(labels, n_rows, generator=stream(seed, "partition"))


def test_every_partition_is_here() -> None:
    assert {partition.name for partition in PARTITIONS} == set(partitions.names)


@every_partition
def test_shares_are_disjoint_and_complete(partition: Partition) -> None:
    labels = labels_of(997)
    before, global_state = labels.clone(), torch.get_rng_state()
    shares = divide(partition, labels, 10)
    assert len(shares) == (10 if partition.is_fixed else 1)
    assert sorted(torch.cat(shares).tolist()) == list(range(997))
    assert all(share.dtype == torch.int64 and len(share) > 0 for share in shares)
    assert torch.equal(labels, before)
    assert torch.equal(torch.get_rng_state(), global_state)
    again, other = divide(partition, labels, 10), divide(partition, labels, 10, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(shares, again, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(shares, other, strict=True)) != partition.is_fixed


@given(
    n=st.integers(1, 60),
    n_rows=st.integers(1, 12),
    n_classes=st.integers(1, 5),
    log_alpha=st.floats(-12, 12),
    seed=st.integers(0, 99),
)
def test_dirichlet_leaves_no_client_empty(
    n: int, n_rows: int, n_classes: int, log_alpha: float, seed: int
) -> None:
    labels = torch.randint(n_classes, (n,), generator=stream(seed, "labels"))
    partition = Dirichlet(alpha=10.0**log_alpha)
    if n_rows > n:
        with pytest.raises(
            ValueError,
            match=rf"^`n_rows` must be at most {n}, the number of samples, got {n_rows}\.$",
        ):
            divide(partition, labels, n_rows, seed)
        return
    shares = divide(partition, labels, n_rows, seed)
    assert min(map(len, shares)) >= 1
    assert sorted(torch.cat(shares).tolist()) == list(range(n))


def test_eight_of_eighty_shards_each() -> None:
    labels = torch.arange(10).repeat_interleave(600)[
        torch.randperm(6000, generator=stream(0, "order"))
    ]
    shares = divide(Shards(n_shards=80), labels, 10)
    assert [len(share) for share in shares] == [600] * 10
    for share in shares:  # a shard of 75 samples lies within one class of 600
        counts = labels[share].bincount(minlength=10)
        assert bool((counts % 75 == 0).all())
        assert 1 <= int((counts > 0).sum()) <= 8


@given(
    n=st.integers(20, 300),
    per_client=st.integers(1, 4),
    n_rows=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_shards_are_of_one_size_and_few_classes(
    n: int, per_client: int, n_rows: int, seed: int
) -> None:
    """If shards are not larger than the smallest class, each one spans at most two classes."""
    labels = labels_of(n, seed)
    shares = divide(Shards(n_shards=per_client * n_rows), labels, n_rows, seed)
    assert max(map(len, shares)) - min(map(len, shares)) <= per_client
    assert sorted(torch.cat(shares).tolist()) == list(range(n))
    smallest = int(labels.bincount(minlength=10).min())
    size = math.ceil(n / (per_client * n_rows))
    if size <= smallest:
        assert all(len(labels[share].unique()) <= 2 * per_client for share in shares)


def test_shards_that_cannot_be_divided_evenly_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^`n_shards` must be a multiple of 7, the number of clients, got 80\.$"
    ):
        divide(Shards(n_shards=80), labels_of(100), 7)
    with pytest.raises(
        ValueError, match=r"^`n_shards` must be at most 50, the number of samples, got 80\.$"
    ):
        divide(Shards(n_shards=80), labels_of(50), 10)


def proportions(alpha: float, n_rows: int, n_draws: int, n: int = 5000) -> Tensor:
    """[n_draws, n_rows]: the share of each client in one class."""
    labels = torch.zeros(n, dtype=torch.int64)
    drawn = [
        [len(share) for share in divide(Dirichlet(alpha=alpha), labels, n_rows, seed)]
        for seed in range(n_draws)
    ]
    return torch.tensor(drawn, dtype=torch.float64) / n


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 10.0])
def test_proportions_follow_the_dirichlet_law(alpha: float) -> None:
    """Mean 1/n, variance (n - 1) / (n^2 (n alpha + 1)), within 5 standard errors of 600 draws."""
    n_rows, n_draws = 5, 600
    found = proportions(alpha, n_rows, n_draws)
    variance = (n_rows - 1) / (n_rows**2 * (n_rows * alpha + 1))
    assert bool(((found.mean(0) - 1 / n_rows).abs() < 5 * math.sqrt(variance / n_draws)).all())
    squares = (found - 1 / n_rows).square().mean(1)
    assert abs(float(squares.mean()) - variance) < 5 * float(squares.std()) / math.sqrt(n_draws)


@pytest.mark.parametrize("alpha", [1e-2, 1e-3, 1e-4, 1e-6, 1e-300])
def test_a_tiny_alpha_gives_each_class_to_one_client(alpha: float) -> None:
    """The largest share is near 1.

    Its expectation is at least that of the sum of squares, (alpha + 1) / (n alpha + 1).
    """
    found = proportions(alpha, 5, 200).max(1).values
    assert float(found.mean()) > (alpha + 1) / (5 * alpha + 1) - 0.01


@pytest.mark.parametrize("alpha", [1e4, 1e12, 1e100, 1e308])
def test_a_huge_alpha_gives_equal_shares(alpha: float) -> None:
    assert bool(((proportions(alpha, 5, 20) - 0.2).abs() < 0.02).all())


def batches_of(
    partition: Partition,
    n: int = 240,
    n_rows: int = 4,
    row_size: int = 3,
    n_trusted: int = 0,
    seed: int = 0,
) -> Batches:
    return Batches(
        labels_of(n), partition, n_rows=n_rows, row_size=row_size, n_trusted=n_trusted, seed=seed
    )


WALKS = [Shuffled(), Shards(n_shards=16), Dirichlet(alpha=0.3), Dirichlet(alpha=1e-2)]
every_walk = pytest.mark.parametrize("partition", WALKS, ids=str)


@every_walk
@pytest.mark.parametrize("row_size", [1, 3, 100])
def test_every_pass_visits_each_sample_once(partition: Partition, row_size: int) -> None:
    """Also if clients are smaller than their row, or differ in size."""
    batches = batches_of(partition, row_size=row_size)
    steps = torch.stack([batches.indices(step) for step in range(400)])
    assert steps.shape == (400, 4 * row_size)
    if not partition.is_fixed:
        walks = [steps.flatten()]
    else:
        walks = [steps[:, row * row_size : (row + 1) * row_size].flatten() for row in range(4)]
    assert len(walks) == len(batches.shares)
    for walk, share in zip(walks, batches.shares, strict=True):
        wanted = sorted(share.tolist())
        passes = walk[: len(walk) // len(share) * len(share)].view(-1, len(share))
        assert all(sorted(one.tolist()) == wanted for one in passes[:20])
        if len(share) > 5 and len(passes) > 1:
            assert not torch.equal(passes[0], passes[1])


@every_walk
def test_batches_of_any_step_can_be_requested(partition: Partition) -> None:
    walked = batches_of(partition)
    in_order = [walked.indices(step) for step in range(200)]
    asked = batches_of(partition)
    for step in torch.randperm(200, generator=stream(0, "steps")).tolist():
        assert torch.equal(asked.indices(step), in_order[step])
        assert torch.equal(batches_of(partition).indices(step), in_order[step])
    other = batches_of(partition, seed=1)
    assert any(not torch.equal(other.indices(step), in_order[step]) for step in range(3))


@every_walk
def test_trusted_samples_are_in_no_row(partition: Partition) -> None:
    batches = batches_of(partition, n_trusted=37)
    trusted = set(batches.trusted.tolist())
    assert len(trusted) == 37
    assert trusted.isdisjoint(torch.cat(batches.shares).tolist())
    assert trusted | set(torch.cat(batches.shares).tolist()) == set(range(240))
    assert batches.epoch(203) == 12.0
    for step in range(60):
        assert trusted.isdisjoint(batches.indices(step).tolist())
        drawn = batches.trusted_indices(step, 50)
        assert drawn.shape == (50,)
        assert set(drawn.tolist()) <= trusted
        assert torch.equal(drawn, batches.trusted_indices(step, 50))
    assert not torch.equal(batches.trusted_indices(0, 50), batches.trusted_indices(1, 50))


def test_rows_of_clients_hold_their_own_samples() -> None:
    batches = batches_of(Shards(n_shards=8))
    for step in range(50):
        for row, part in enumerate(batches.indices(step).split(3)):
            assert set(part.tolist()) <= set(batches.shares[row].tolist())


@pytest.mark.parametrize("n_trusted", [240, 241, 10**6])
def test_some_samples_must_be_left(n_trusted: int) -> None:
    message = (
        rf"^`n_trusted` must leave some of the 240 training samples to the rows, got {n_trusted}\.$"
    )
    with pytest.raises(ValueError, match=message):
        batches_of(Shuffled(), n_trusted=n_trusted)


def test_drawing_does_not_touch_the_global_generator() -> None:
    global_state = torch.get_rng_state()
    batches = batches_of(Dirichlet(), n_trusted=5)
    batches.indices(3)
    batches.trusted_indices(3, 4)
    assert torch.equal(torch.get_rng_state(), global_state)
