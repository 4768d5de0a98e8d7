"""Weights of rows, samples of rows, the reduction of the loss, and the choice of vmap."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, mse_loss

from holdfast import RobustStep
from holdfast.aggregators import GeometricMedian, Mean
from holdfast.sources import LayerGrams, MicroBatches, PerSample, Source
from tests.oracle.gradients import by_loop, ordinary
from tests.sources.cases import matrix

IGNORED = -100


def word_loss(output: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(output.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def n_words(_: Any, targets: Tensor) -> Tensor:
    return (targets != IGNORED).sum(1)


def micro_batches(model: nn.Module, loss_fn: Any, **options: Any) -> Source:
    return MicroBatches(model, loss_fn, n_rows=4, **options)


def loop(model: nn.Module, loss_fn: Any, **options: Any) -> Source:
    return MicroBatches(model, loss_fn, n_rows=4, vectorized=False, **options)


SOURCES: list[Callable[..., Source]] = [micro_batches, loop, PerSample, LayerGrams]
every_source = pytest.mark.parametrize("make", SOURCES)


def words() -> tuple[nn.Module, Tensor, Tensor]:
    """A model of words, and a batch in which samples have one to six targets."""
    model = nn.Sequential(nn.Embedding(7, 5), nn.Tanh(), nn.Linear(5, 7))
    x, y = torch.randint(0, 7, (8, 6)), torch.randint(0, 7, (8, 6))
    y[torch.arange(6) >= torch.tensor([1, 2, 3, 4, 5, 6, 1, 1])[:, None]] = IGNORED
    return model, x, y


@every_source
def test_weighted_rows_are_those_of_a_loop_and_their_mean_is_the_gradient(
    make: Callable[..., Source],
) -> None:
    model, x, y = words()
    source = make(model, word_loss, terms=n_words)
    rows = source(x, y)
    expected = by_loop(model, word_loss, x, y, rows.n)
    torch.testing.assert_close(matrix(rows), expected, rtol=1e-4, atol=1e-6)
    assert source.row_weights is not None
    whole = ordinary(model, word_loss, x, y)
    torch.testing.assert_close(rows.combine(source.row_weights), whole, rtol=1e-4, atol=1e-6)
    step = RobustStep(Mean())
    result = step(rows, row_weights=source.row_weights)
    torch.testing.assert_close(result.direction, whole, rtol=1e-4, atol=1e-6)
    assert torch.isfinite(GeometricMedian()(rows, row_weights=source.row_weights)).all()


@every_source
def test_samples_without_terms_have_no_weight(make: Callable[..., Source]) -> None:
    model, x, y = words()
    y[:6] = IGNORED  # most rows
    source = make(model, word_loss, terms=n_words)
    rows = source(x, y)
    assert source.row_weights is not None
    assert int((source.row_weights > 0).sum()) == rows.n // 4
    whole = ordinary(model, word_loss, x, y)
    torch.testing.assert_close(rows.combine(source.row_weights), whole, rtol=1e-4, atol=1e-6)


@every_source
def test_equal_numbers_of_terms_are_no_weights(make: Callable[..., Source]) -> None:
    model, x, y = words()
    source = make(model, word_loss, terms=n_words)
    for targets, has_weights in ((y, True), (torch.zeros_like(y), False), (y, True)):
        source(x, targets)
        assert (source.row_weights is not None) == has_weights
    source = make(model, word_loss)
    source(x, y)
    assert source.row_weights is None


def test_losses_of_samples_have_weights_too() -> None:
    model, x, y = words()

    def losses(output: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(output.mT, targets, ignore_index=IGNORED, reduction="none")
        return found.sum(1) / (targets != IGNORED).sum(1)

    y[3] = IGNORED
    source = LayerGrams(model, losses, terms=n_words)
    rows = source(x, y)
    assert source.row_weights is not None
    whole = ordinary(model, word_loss, x, y)
    torch.testing.assert_close(rows.combine(source.row_weights), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("words", r"`terms` must be a function of inputs and targets, got str\."),
        (lambda *_: torch.ones(3), r"`terms` must return the number of terms of each sample \[8\]"),
        (lambda *_: torch.tensor(8), r"of terms of each sample \[8\], got shape \(\)\."),
        (lambda *_: torch.zeros(8), r"`terms` must return numbers of at least 0 that are not all"),
        (lambda *_: -torch.ones(8), r"`terms` must return numbers of at least 0 that are not all"),
    ],
)
@every_source
def test_bad_terms_are_refused(make: Callable[..., Source], terms: Any, message: str) -> None:
    model, x, y = words()
    with pytest.raises(ValueError, match=message):
        make(model, word_loss, terms=terms)(x, y)


def test_terms_of_a_sum_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`terms` must be None if the loss is a sum"):
        PerSample(nn.Linear(3, 1), nn.MSELoss(reduction="sum"), terms=n_words)


def test_samples_of_rows() -> None:
    model, x, y = words()
    slices, samples = MicroBatches(model, word_loss, n_rows=4), LayerGrams(model, word_loss)
    for source in (slices, samples):
        with pytest.raises(ValueError, match=r"`rows` must be a row of the last call, .* 0 rows"):
            source.samples_of(0)
        source(x, y)
    assert slices.samples_of(1).tolist() == [2, 3]
    assert samples.samples_of(5).tolist() == [5]
    mask = torch.tensor([False, True, False, True])
    assert slices.samples_of(mask).tolist() == [2, 3, 6, 7]
    assert slices.samples_of(torch.tensor([3, 0])).tolist() == [6, 7, 0, 1]
    slices(x[:4], y[:4])
    assert slices.samples_of(3).tolist() == [3]
    for bad in (4, -1, True, 1.0):
        with pytest.raises(ValueError, match=r"`rows` must be a row of the last call, which made"):
            slices.samples_of(bad)  # type: ignore[arg-type]


def summed(output: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(output, targets, reduction="sum")


def averaged(output: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(output, targets)


DENSE: list[Callable[..., Source]] = [micro_batches, loop, PerSample]


@pytest.mark.parametrize("make", DENSE)
def test_a_loss_of_another_reduction_is_noticed(make: Callable[..., Source]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    if make is PerSample:
        model[1].eval()
    modes = [module.training for module in model.modules()]
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    message = r"^`reduction` must be 'sum', because the loss grows with the number of samples, got"
    with pytest.raises(ValueError, match=message):
        make(model, summed)(x, y)
    message = r"^`reduction` must be 'mean', because the loss does not depend on the number of sam"
    with pytest.raises(ValueError, match=message):
        make(model, averaged, reduction="sum")(x, y)
    assert [module.training for module in model.modules()] == modes
    make(model, summed, reduction="sum")(x, y)
    make(model, averaged)(x, y)


@pytest.mark.parametrize("make", DENSE)
def test_no_correct_loss_is_refused(make: Callable[..., Source]) -> None:
    x, y = torch.randn(8, 3), torch.randn(8, 3)
    model: Any = nn.Linear(3, 3)

    def noisy(output: Tensor, targets: Tensor) -> Tensor:
        return mse_loss(dropout(output, 0.5), targets)

    def nothing(output: Tensor, targets: Tensor) -> Tensor:
        return 0.0 * mse_loss(output, targets)

    def penalized(output: Tensor, targets: Tensor) -> Tensor:
        return mse_loss(output, targets).add(model.weight.square().sum())

    def contrastive(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output @ targets.T, torch.arange(len(output)))

    losses = (noisy, nothing, penalized, contrastive, lambda o, t: mse_loss(o, t.where(t > 9, o)))
    for loss_fn in losses:
        for _ in range(3):
            rows = make(model, loss_fn)(x, y)
            assert bool(torch.isfinite(rows.combine(torch.ones(rows.n))).all())


def test_a_sample_that_cannot_tell_leaves_the_check_to_the_next_batch() -> None:
    model, y = nn.Linear(3, 1), torch.randn(8, 1)
    source = MicroBatches(model, summed, n_rows=4)
    y[0] = torch.nan
    source(torch.randn(8, 3), y)
    y[0] = 0.0
    with pytest.raises(ValueError, match="`reduction` must be 'sum'"):
        source(torch.randn(8, 3), y)


class Branching(nn.Module):
    """Its computation depends on the values of its input, after it drew random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = dropout(self.layer(x), 0.5, self.training)
        return found if bool(found.sum() > 0) else -found


class Remembering(nn.Module):
    """It stores a tensor of its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x)
        return self.last


@pytest.mark.parametrize("build", [Branching, Remembering])
def test_models_that_vmap_does_not_support_take_the_loop(build: Callable[[], nn.Module]) -> None:
    model, x, y = build(), torch.randn(8, 3), torch.randn(8, 1)
    found = []
    with torch.random.fork_rng([]):
        for vectorized in (None, False):
            torch.default_generator.manual_seed(1)
            source = MicroBatches(model, averaged, n_rows=4, vectorized=vectorized)
            found.append([matrix(source(x, y)) for _ in range(2)])
            found[-1].append(torch.get_rng_state())
    assert all(map(torch.equal, *found))
    if isinstance(model, Remembering):
        assert model.last.shape == (2, 1)
        assert model.last.isfinite().all()


@pytest.mark.parametrize(
    ("build", "size", "expected"),
    [
        (lambda: nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 1)), (9,), 1),
        (lambda: nn.Sequential(nn.Linear(9, 2500), nn.Linear(2500, 1000)), (9,), 4),
        (lambda: nn.Sequential(nn.Conv2d(1, 64, 3), nn.Conv2d(64, 1, 3)), (1, 200, 200), 4),
    ],
)
def test_small_models_are_vectorized(
    build: Callable[[], nn.Module], size: tuple[int, ...], expected: int
) -> None:
    """All slices in one forward pass, or one pass each if rows or activations are large."""
    model, x = build(), torch.randn(8, *size)
    n_passes = 0

    def loss_fn(output: Tensor) -> Tensor:
        nonlocal n_passes
        n_passes += 1
        return output.square().mean()

    source = MicroBatches(model, loss_fn, n_rows=4)
    source(x)
    n_passes = 0
    source(x)
    assert n_passes == expected


def test_models_with_hooks_take_the_loop() -> None:
    model, x = nn.Linear(3, 1), torch.randn(8, 3)
    shapes: list[torch.Size] = []
    model.register_forward_hook(lambda *call: shapes.append(call[2].shape))
    source = MicroBatches(model, lambda output: output.square().mean(), n_rows=4)
    source(x)
    shapes.clear()
    source(x)
    assert shapes == [(2, 1)] * 4
