"""The geometric median by a sketch and sweeps: certified, and the certificate is true."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import GeometricMedian
from holdfast.geometry import (
    DenseRows,
    Outcome,
    Sketch,
    geometric_median,
    pays_to_stream,
    streaming_geometric_median,
)
from holdfast.geometry import _sketch as sketching
from holdfast.geometry import _streaming_median as streaming
from holdfast.geometry._central import nearer_half
from holdfast.geometry._kernels import WINDOW, sampled_columns
from tests.loops import naming
from tests.oracle.geometric_median import objective
from tests.samples import gaussian


def least_objective(rows: Tensor, row_weights: Tensor) -> float:
    """The minimum of the objective, by the Gram matrix of float64 rows."""
    dense = DenseRows(rows.double())
    solution = geometric_median(dense.gram(), row_weights=row_weights, tolerance=1e-13)
    return objective(rows.double(), dense.combine(solution.weights), row_weights)


def unsampled(d: int, every: int) -> Tensor:
    """bool [d] columns of one tensor that a sample leaves out."""
    sample, _ = sampled_columns(torch.arange(d, dtype=torch.float64)[None], every)
    return torch.ones(d, dtype=torch.bool).index_fill_(0, sample[0].long(), False)


def hidden(rows: Tensor) -> Tensor:
    """A fifth of the rows is large where the sample does not look."""
    dark = torch.nonzero(unsampled(rows.shape[1], sketching.columns_per_sampled(*rows.shape)))[:, 0]
    spoiled = rows.clone()
    spoiled[: len(rows) // 5, dark[: len(dark) // 2]] += 5.0
    return spoiled


SCENES: dict[str, Callable[[Tensor], Tensor]] = {
    "clean": lambda rows: rows,
    "common part": lambda rows: rows + 0.3,
    "long common part": lambda rows: rows + 3.0,
    "attacked": lambda rows: torch.cat([-100 * rows[: len(rows) // 5], rows[len(rows) // 5 :]]),
    "hidden": hidden,
    "of many lengths": lambda rows: rows * torch.linspace(0.2, 5.0, len(rows))[:, None],
    "heavy tails": lambda rows: rows**3,
    "few columns matter": lambda rows: rows * torch.arange(1, rows.shape[1] + 1) ** -0.5,
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("n", [32, 100, 300])
def test_the_certificate_is_true(n: int, scene: str) -> None:
    rows = SCENES[scene](gaussian(n, 30_000))
    eta = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    for row_weights in (torch.full_like(eta, 1 / n), eta / eta.sum()):
        found = streaming_geometric_median(DenseRows(rows), row_weights=row_weights)
        if found is None:
            assert scene in ("hidden", "few columns matter", "long common part")
            continue
        solution, vector = found
        assert solution.outcome is Outcome.CERTIFIED
        assert solution.gap is not None
        assert solution.gap <= 1e-6
        excess = objective(rows, vector, row_weights) - least_objective(rows, row_weights)
        distances = (rows.double() - vector.double()).norm(dim=1)
        assert excess <= solution.gap * float(nearer_half(distances, row_weights)) * (1 + 1e-6)
        torch.testing.assert_close(solution.weights.float() @ rows, vector, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("distance", [0.3, 0.03, 1e-3, 1e-5])
def test_the_bound_on_the_gap_holds_anywhere(scene: str, distance: float) -> None:
    """Not only near the minimum: where the bound is finite, the true gap is smaller."""
    rows = SCENES[scene](gaussian(40, 5000)).double()
    dense = DenseRows(rows)
    sketch = Sketch.of(dense, sketching.columns_per_sampled(40, 5000))
    assert sketch is not None
    eta = torch.full((40,), 1 / 40, dtype=torch.float64)
    polish = streaming._Polish(sketch=sketch, eta=eta, rounding=0.0)
    best = geometric_median(dense.gram(), tolerance=1e-13).weights
    least = objective(rows, best @ rows, eta)
    for seed in range(5):
        moved = best * (1 + distance * gaussian(1, 40, seed=seed, dtype=torch.float64)[0]).abs()
        weights = moved / moved.sum()
        gap = polish.gap(weights, (rows - weights @ rows).norm(dim=1))
        with naming(seed, "seed"):
            assert objective(rows, weights @ rows, eta) - least <= gap * (1 + 1e-6) + 1e-12 * least
            if distance <= 1e-3:
                assert gap < 0.1 * least


def test_two_sweeps_suffice_in_high_dimension() -> None:
    for n, scene in ((32, "clean"), (32, "attacked"), (128, "attacked")):
        found = streaming_geometric_median(DenseRows(SCENES[scene](gaussian(n, 100_000) + 1)))
        assert found is not None
        with naming((n, scene), "rows"):
            assert found[0].steps == 2


def test_several_tensors_and_kept_rows_are_sampled_alike() -> None:
    rows = gaussian(50, 40_000) + 0.5
    parts = [rows[:, :17].view(50, 17, 1), rows[:, 17:9000], rows[:, 9000:]]
    for dense in (DenseRows(parts), DenseRows(parts).keep(torch.arange(40))):
        found = streaming_geometric_median(dense)
        assert found is not None
        equal = torch.full((dense.n,), 1 / dense.n, dtype=torch.float64)
        least = least_objective(rows[: dense.n], equal)
        assert objective(rows[: dense.n], found[1], equal) <= least * (1 + 1e-6)


def test_a_sample_looks_at_all_inputs_of_a_layer() -> None:
    """Windows must not always show the same part of the weights of a neuron."""
    for width in (64, 256, 1024):
        seen = ~unsampled(width * 1024, 16)
        assert bool(seen.view(1024, width).any(0).all())
    columns = gaussian(3, WINDOW)
    assert sampled_columns(columns, 16) == (columns, 1.0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows.index_fill(0, torch.tensor([3]), float("nan")),
        lambda rows: rows.index_fill(0, torch.tensor([3]), 1e30),
        lambda rows: rows.index_fill(0, torch.tensor([3]), 0.0),
        lambda rows: rows + 1e4,
        lambda rows: rows * 1e-30,
        lambda rows: rows * 3e-23,
        lambda rows: rows * 1e-18,
    ],
    ids=["nan", "1e30", "zero", "common part", "1e-30", "3e-23", "1e-18"],
)
def test_dangerous_rows_are_left_to_the_careful_way(
    spoil: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketching, "SMALL", 1)
    rows = spoil(gaussian(100, 700))
    assert pays_to_stream(DenseRows(rows))
    assert streaming_geometric_median(DenseRows(rows)) is None
    result = GeometricMedian().aggregate(rows)
    assert bool(torch.isfinite(result.vector).all())
    assert result.outcome is Outcome.CERTIFIED


def test_it_is_used_where_it_pays() -> None:
    rows = gaussian(100, 20_000)
    assert pays_to_stream(DenseRows(rows))
    assert not pays_to_stream(DenseRows(rows[: sketching.FEW_ROWS - 1].repeat(1, 10)))
    assert not pays_to_stream(DenseRows(rows[:, :1000]))
    assert not pays_to_stream(DenseRows(rows.bfloat16()))
    assert streaming_geometric_median(DenseRows(rows), tolerance=1e-12) is None


def same_sign(n: int, d: int) -> dict[str, Tensor]:
    """Rows whose terms round the same way, which float32 sums of many terms do not survive."""
    spread = torch.linspace(0.1, 0.6, n)[:, None]
    spiked = gaussian(n, d) * spread
    spiked[:, :64] = d**0.5 / 4
    return {
        "constant": torch.full((n, d), 0.1) * (1 + spread),
        "nearly constant": 0.1 + 0.003 * gaussian(n, d),
        "spiked": spiked,
        "half constant": torch.cat([torch.full((n, d // 2), 0.1), 0.2 * spiked[:, d // 2 :]], 1),
    }


@pytest.mark.parametrize("kind", same_sign(2, 128))
def test_errors_of_float32_sums_are_within_the_stated_ones(kind: str) -> None:
    rows = same_sign(24, 2**18)[kind]
    dense, wide = DenseRows(rows), rows.double()
    squares = wide.square().sum(1)
    errors = (dense.squared_norms() - squares).abs() / squares
    assert float(errors.max()) < 1e-6
    out, weights = torch.empty(2**18), torch.full((24,), 1 / 24, dtype=torch.float64)
    products = dense.sweep(weights, out)
    exact = wide @ out.double()
    scale = (squares * out.double().square().sum()).sqrt()
    assert float(((products - exact).abs() / scale).max()) < streaming.FLOAT32_ROUNDING
    gram = dense.gram()
    if not gram.exact:
        found, norms = gram.products[:24, :24], squares.sqrt()
        relative = (found - wide @ wide.T).abs() / norms[:, None] / norms
        assert float(relative.max()) < gram.precision


@pytest.mark.parametrize("kind", same_sign(2, 128))
def test_no_certificate_is_false_where_terms_round_the_same_way(kind: str) -> None:
    rows = same_sign(32, 2**15)[kind]
    eta = torch.full((32,), 1 / 32, dtype=torch.float64)
    result = GeometricMedian().aggregate(rows)
    excess = objective(rows.double(), result.vector.double(), eta) - least_objective(rows, eta)
    half = nearer_half((rows.double() - result.vector.double()).norm(dim=1), eta)
    assert result.gap is not None
    assert excess / float(half) <= result.gap
