"""Running statistics: every row starts with the same, and one bad row cannot move them."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast.sources import Accumulated, MicroBatches, PerSample


def network() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def statistics_of_rows(model: Any, x: Tensor, n_rows: int) -> tuple[Tensor, Tensor]:
    """[n_rows, 4] running mean and variance after each slice on its own."""
    means, variances = [], []
    for part in x.chunk(n_rows):
        twin = copy.deepcopy(model)
        twin(part)
        means.append(twin[1].running_mean)
        variances.append(twin[1].running_var)
    return torch.stack(means), torch.stack(variances)


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("n_rows", [4, 5])
def test_running_statistics_are_the_coordinate_median_over_rows(
    vectorized: bool, n_rows: int
) -> None:
    model, x, y = network(), torch.randn(20, 3), torch.zeros(20, dtype=torch.int64)
    means, variances = statistics_of_rows(model, x, n_rows)
    source = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=n_rows, vectorized=vectorized)
    expected = model[1].num_batches_tracked.clone() + 1
    source(x, y)
    torch.testing.assert_close(model[1].running_mean, means.quantile(0.5, dim=0))
    torch.testing.assert_close(model[1].running_var, variances.quantile(0.5, dim=0))
    assert torch.equal(model[1].num_batches_tracked, expected)


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("value", [1e12, float("nan"), float("inf")])
def test_a_bad_minority_cannot_move_them(vectorized: bool, value: float) -> None:
    model, x, y = network(), torch.randn(20, 3), torch.zeros(20, dtype=torch.int64)
    honest = statistics_of_rows(model, x[8:], 3)[0]
    x[:8] = value
    MicroBatches(model, nn.CrossEntropyLoss(), n_rows=5, vectorized=vectorized)(x, y)
    found = model[1].running_mean
    assert bool((found >= honest.amin(0) - 1e-6).all())
    assert bool((found <= honest.amax(0) + 1e-6).all())


def test_a_refused_step_leaves_them_as_they_were() -> None:
    model, x = network(), torch.randn(20, 3)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for vectorized in (False, True):
        source = MicroBatches(model, nn.MSELoss(), n_rows=5, vectorized=vectorized)
        message = "`loss_fn` must be finite for at least half of the rows, got 5 of 5"
        with pytest.raises(ValueError, match=message):
            source(x, torch.full((20, 2), torch.nan))
        assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_an_interrupted_call_leaves_them_as_they_were() -> None:
    model, x, y = network(), torch.randn(20, 3), torch.zeros(20, dtype=torch.int64)
    before = model[1].running_mean.clone()
    n_calls = 0

    def loss_fn(output: Tensor, targets: Tensor) -> Tensor:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 8:  # three calls check the reduction, four made rows
            raise KeyboardInterrupt
        return nn.functional.cross_entropy(output, targets)

    with pytest.raises(KeyboardInterrupt):
        MicroBatches(model, loss_fn, n_rows=5, vectorized=False)(x, y)
    assert n_calls == 8
    assert torch.equal(model[1].running_mean, before)


def test_accumulated_rows_combine_them_in_the_same_way() -> None:
    model, x, y = network(), torch.randn(20, 3), torch.zeros(20, dtype=torch.int64)
    twin = copy.deepcopy(model)
    MicroBatches(twin, nn.CrossEntropyLoss(), n_rows=5)(x, y)
    source = Accumulated(model, n_rows=5)
    for _ in range(2):
        model.eval()
        model(x)  # an evaluation in between
        model.train()
        for part, labels in zip(x.chunk(5), y.chunk(5), strict=True):
            nn.CrossEntropyLoss()(model(part), labels).backward()
            rows = source()
        assert rows is not None
        torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
        torch.testing.assert_close(model[1].running_var, twin[1].running_var)
        assert torch.equal(model[1].num_batches_tracked, twin[1].num_batches_tracked)
        MicroBatches(twin, nn.CrossEntropyLoss(), n_rows=5)(x, y)


def test_other_buffers_take_part() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)
            self.n_calls: Tensor
            self.largest: Tensor
            self.flag: Tensor
            self.register_buffer("n_calls", torch.tensor(3))
            self.register_buffer("largest", torch.zeros(()))
            self.register_buffer("flag", torch.tensor(False))

        def forward(self, x: Tensor) -> Tensor:
            self.n_calls += 1
            self.largest.copy_(x.detach().max())
            found: Tensor = self.layer(x)
            return found

    model = Counting()
    x = torch.tensor([[1.0, 0.0], [5.0, 0.0], [1e30, 0.0]])
    MicroBatches(model, nn.MSELoss(), n_rows=3)(x, torch.zeros(3, 1))
    assert int(model.n_calls) == 4
    assert float(model.largest) == 5.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PerSample(model, nn.MSELoss())(x[:, :], torch.zeros(3, 1))
    assert int(model.n_calls) == 5
