"""Contracts of all sources: rows equal a loop, their mean is the gradient, nothing else changes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast import Layout
from holdfast.geometry import DenseRows
from holdfast.sources import LayerGrams, MicroBatches, PerSample, Source
from tests.oracle.gradients import by_loop, ordinary
from tests.sources.cases import CASES, matrix, named

Make = Callable[..., Source]


def micro_batches(model: nn.Module, loss_fn: Any, n: int, **options: Any) -> Source:
    return MicroBatches(model, loss_fn, n_rows=n // 2, **options)


def vectorized(model: nn.Module, loss_fn: Any, n: int, **options: Any) -> Source:
    return MicroBatches(model, loss_fn, n_rows=n // 2, vectorized=True, **options)


def per_sample(model: nn.Module, loss_fn: Any, n: int, **options: Any) -> Source:
    return PerSample(model, loss_fn, **options)


def layer_grams(model: nn.Module, loss_fn: Any, n: int, **options: Any) -> Source:
    return LayerGrams(model, loss_fn, **options)


SOURCES: list[Make] = [micro_batches, vectorized, per_sample, layer_grams]
every_source = pytest.mark.parametrize("make", SOURCES)


@every_source
def test_rows_are_those_of_a_loop(make: Make) -> None:
    for case in CASES:
        model, x, y = case.make()
        with named(case):
            rows = make(model, nn.CrossEntropyLoss(), 6)(x, y)
            expected = by_loop(model, nn.CrossEntropyLoss(), x, y, rows.n)
            torch.testing.assert_close(matrix(rows), expected, rtol=1e-4, atol=1e-6)


@every_source
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_mean_of_rows_is_the_ordinary_gradient(make: Make, reduction: str) -> None:
    loss_fn = nn.CrossEntropyLoss(reduction=reduction)
    for case in CASES:
        model, x, y = case.make()
        with named(case):
            rows = make(model, loss_fn, 6)(x, y)
            mean = rows.combine(torch.full((rows.n,), 1 / rows.n, dtype=torch.float64))
            expected = ordinary(model, loss_fn, x, y)
            torch.testing.assert_close(mean, expected, rtol=1e-4, atol=2e-6)


@every_source
def test_model_gradients_mode_and_batch_do_not_change(make: Make) -> None:
    for case in CASES:
        model, x, y = case.make()
        layout = Layout(model)
        first, *others = layout.parameters
        for parameter in others:
            parameter.grad = torch.ones_like(parameter)
        modes = [module.training for module in model.modules()]
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        batch = x.clone(), y.clone()
        with named(case):
            make(model, cross_entropy, 6)(x, y)
            assert first.grad is None
            assert all(p.grad is not None and bool((p.grad == 1).all()) for p in others)
            assert [module.training for module in model.modules()] == modes
            assert all(torch.equal(now, state[name]) for name, now in model.state_dict().items())
            assert all(parameter.requires_grad for parameter in layout.parameters)
            assert torch.equal(x, batch[0])
            assert torch.equal(y, batch[1])
            assert not any(module._forward_hooks for module in model.modules())
            assert not any(parameter._backward_hooks for parameter in layout.parameters)


@every_source
def test_rows_carry_the_layout_and_the_losses(make: Make) -> None:
    for case in CASES:
        model, x, y = case.make()
        source = make(model, cross_entropy, 6)
        with named(case):
            rows = source(x, y)
            assert rows.layout is source.layout
            assert rows.sections == source.layout.sizes
            assert rows.dtype == torch.float32
            loss = float(cross_entropy(model(x), y).detach())
            assert float(source.losses.mean()) == pytest.approx(loss, rel=1e-5)
            assert not source.losses.requires_grad


@every_source
def test_rows_keep_the_dtype_of_the_parameters(make: Make) -> None:
    model, x, y = CASES[1].make(dtype=torch.float64)
    assert make(model, cross_entropy, 6)(x, y).dtype == torch.float64


@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_every_shape(n_rows: int, n_each: int, n_in: int, n_out: int, dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(n_in, 3), nn.Tanh(), nn.Linear(3, n_out)).to(dtype)
    x, y = (
        torch.randn(n_rows * n_each, n_in, dtype=dtype),
        torch.randn(n_rows * n_each, n_out, dtype=dtype),
    )
    expected = by_loop(model, nn.MSELoss(), x, y, n_rows)
    for vmapped in (False, True):
        rows = MicroBatches(model, nn.MSELoss(), n_rows=n_rows, vectorized=vmapped)(x, y)
        torch.testing.assert_close(matrix(rows), expected, rtol=1e-4, atol=1e-6)
    samples = by_loop(model, nn.MSELoss(), x, y, n_rows * n_each)
    for source in (PerSample(model, nn.MSELoss()), LayerGrams(model, nn.MSELoss())):
        torch.testing.assert_close(matrix(source(x, y)), samples, rtol=1e-4, atol=1e-6)


def test_dropout_has_its_own_noise_in_every_row() -> None:
    model = nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5), nn.Linear(50, 1))
    x, y = torch.ones(8, 50), torch.ones(8, 1)
    for source in (
        MicroBatches(model, nn.MSELoss(), n_rows=8),
        MicroBatches(model, nn.MSELoss(), n_rows=8, vectorized=True),
        PerSample(model, nn.MSELoss()),
        LayerGrams(model, nn.MSELoss()),
    ):
        rows = matrix(source(x, y))
        assert len(torch.unique(rows, dim=0)) == 8
        assert not torch.equal(matrix(source(x, y)), rows), "the next call has other noise"


def test_random_numbers_are_drawn_as_a_plain_step_would() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1))
    x, y = torch.randn(8, 4), torch.randn(8, 1)

    def state_after(run: Callable[[], object]) -> Tensor:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(1)
            run()
            return torch.get_rng_state()

    plain = state_after(lambda: nn.MSELoss()(model(x), y).backward())
    by_slices = state_after(
        lambda: [nn.MSELoss()(model(part), y[:2]).backward() for part in x.chunk(4)]
    )
    assert torch.equal(
        state_after(lambda: MicroBatches(model, nn.MSELoss(), n_rows=4)(x, y)), by_slices
    )
    assert torch.equal(state_after(lambda: LayerGrams(model, nn.MSELoss())(x, y)), plain)
    assert torch.equal(state_after(lambda: PerSample(model, nn.MSELoss())(x, y)), plain)


def test_dropout_rows_are_those_of_the_same_noise() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1))
    x, y = torch.randn(6, 4), torch.randn(6, 1)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(1)
        rows = LayerGrams(model, nn.MSELoss())(x, y)
        mean = rows.combine(torch.full((6,), 1 / 6))
        torch.default_generator.manual_seed(1)
        torch.testing.assert_close(mean, ordinary(model, nn.MSELoss(), x, y))


def test_batches_may_be_tuples_or_mappings_and_targets_may_be_missing() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
            found: Tensor = self.layer(a + b) * scale
            return found

    model, a, b = Two(), torch.randn(4, 3), torch.randn(4, 3)

    def mean(source: Source, *batch: Any) -> Tensor:
        rows = source(*batch)
        return rows.combine(torch.full((rows.n,), 1 / rows.n))

    def loss_fn(output: Tensor) -> Tensor:
        return output.square().mean()

    for make in SOURCES:
        source = make(model, loss_fn, 4)
        model.zero_grad()
        loss_fn(model(a, b, 2.0)).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        expected = Layout(model).flatten(gradients)
        torch.testing.assert_close(mean(source, (a, b, 2.0)), expected)
        torch.testing.assert_close(mean(source, {"a": a, "b": b, "scale": 2.0}), expected)


def test_channels_last_gives_the_same_rows() -> None:
    case = next(case for case in CASES if case.name == "convolutions")
    model, x, y = case.make()
    expected = matrix(MicroBatches(model, cross_entropy, n_rows=3)(x, y))
    single = matrix(PerSample(model, cross_entropy)(x, y))
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        matrix(MicroBatches(model, cross_entropy, n_rows=3)(x, y)), expected, rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(
        matrix(LayerGrams(model, cross_entropy)(x, y)), single, rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(
        matrix(PerSample(model, cross_entropy)(x, y)), single, rtol=1e-4, atol=1e-6
    )


def test_autocast_rows_are_close_and_in_the_parameters_dtype() -> None:
    model, x, y = CASES[1].make()
    for make in SOURCES:
        source = make(model, cross_entropy, 6)
        exact = matrix(source(x, y))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rows = source(x, y)
            again = source(x, y)  # weights that autocast has cast already
        assert rows.dtype == torch.float32
        assert float((matrix(again) - exact).norm()) < 0.03 * float(exact.norm())
        assert not torch.equal(matrix(again), exact), "autocast had an effect"


def test_per_sample_is_the_same_in_chunks_of_any_size() -> None:
    model, x, y = CASES[2].make(n=7)
    whole = matrix(PerSample(model, cross_entropy)(x, y))
    for budget in (1, 300_000):
        torch.testing.assert_close(
            matrix(PerSample(model, cross_entropy, budget=budget)(x, y)), whole
        )


def test_the_buffer_is_used_again() -> None:
    model, x, y = CASES[1].make()
    source = MicroBatches(model, cross_entropy, n_rows=3)
    first = source(x, y)
    assert isinstance(first, DenseRows)
    before = next(chunk for _, chunk in first.chunks(10**6)).data_ptr()
    second = source(x[:3], y[:3])
    assert isinstance(second, DenseRows)
    assert next(chunk for _, chunk in second.chunks(10**6)).data_ptr() == before


@every_source
def test_parameters_without_influence_have_zeros_also_in_a_used_buffer(make: Make) -> None:
    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
            self.used = 0

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.layers[self.used](x)
            return found

    model, x, y = Switch(), torch.randn(6, 4), torch.randn(6, 1)
    source = make(model, nn.MSELoss(), 6)
    for model.used in (0, 1):
        used, unused = matrix(source(x, y)).split(5, dim=1)[:: 1 - 2 * model.used]
        assert bool(used.any())
        assert not unused.any()
