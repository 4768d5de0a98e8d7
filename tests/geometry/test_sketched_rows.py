"""The sketch: unbiased inner products, exact lengths, and the same whichever way it is read."""

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import GeometricMedian
from holdfast.geometry import Block, DenseRows, SketchedRows, Tiling
from holdfast.geometry._sketched_rows import MANY_ROWS, _importance_weighted
from holdfast.seeds import stream
from holdfast.selectors import NormSampling, Uniform, row_norms
from tests.samples import gaussian

N, D = 6, 400
Sampling = NormSampling | Uniform


def columns_of_many_sizes(n: int = N, d: int = D, seed: int = 0) -> Tensor:
    """Columns whose sizes spread over three decades, as those of gradients do."""
    sizes = 3 * torch.rand(d, generator=stream(seed, "sizes"), dtype=torch.float64) - 2
    return gaussian(n, d, seed, torch.float64) * 10**sizes


def drawn(rows: DenseRows, selector: Sampling, seed: int = 0) -> tuple[Block, Tensor]:
    """A block of the rows, and their lengths."""
    tiling = selector.tiling(rows.sections)
    norms, lengths = row_norms(rows, tiling, capped=True)
    return selector.select(tiling, norms, step=0, generator=stream(seed, "block")), lengths


def sketch_of(rows: Tensor, selector: Sampling, seed: int = 0) -> SketchedRows:
    given = DenseRows(rows)
    return SketchedRows(given, *drawn(given, selector, seed))


def first_columns(rows: Tensor, k: int, probability: float = 0.5) -> SketchedRows:
    """The sketch by the first k columns."""
    probabilities = torch.full((k,), probability, dtype=torch.float64)
    block = Block(Tiling((rows.shape[1],), 1), torch.arange(k), probabilities)
    return SketchedRows(DenseRows(rows), block, rows.double().norm(dim=1))


@pytest.mark.parametrize(
    "selector",
    [NormSampling(count=8, tile=10), NormSampling(count=60, tile=1), Uniform(count=10, tile=10)],
    ids=repr,
)
def test_the_importance_weighted_gram_matrix_is_unbiased(selector: Sampling) -> None:
    """The mean over 600 draws is within 4.5 standard errors of the truth, in every entry."""
    exact = columns_of_many_sizes() @ columns_of_many_sizes().T
    rows = DenseRows(columns_of_many_sizes())
    tiling, generator = selector.tiling(rows.sections), stream(0, "unbiased")
    norms, _ = row_norms(rows, tiling, capped=True)
    estimates = []
    for _ in range(600):
        block = selector.select(tiling, norms, step=0, generator=generator)
        sketch = _importance_weighted(rows, block)
        estimates.append(sketch @ sketch.T)
    found = torch.stack(estimates)
    error = found.std(0) / len(found) ** 0.5
    assert bool(((found.mean(0) - exact).abs() <= 4.5 * error).all())


def test_norm_sampling_estimates_better_than_uniform() -> None:
    rows = DenseRows(columns_of_many_sizes())
    exact = columns_of_many_sizes() @ columns_of_many_sizes().T
    errors = {}
    for selector in (NormSampling(count=80, tile=1), Uniform(count=80, tile=1)):
        found = [_importance_weighted(rows, drawn(rows, selector, seed)[0]) for seed in range(30)]
        errors[selector.name] = sum(float((part @ part.T - exact).norm()) for part in found)
    assert errors["norm-sampling"] < 0.3 * errors["uniform"]


@pytest.mark.parametrize("seed", range(3))
def test_lengths_are_exact_whatever_is_drawn(seed: int) -> None:
    rows = columns_of_many_sizes(seed=seed)
    for selector in (NormSampling(count=5, tile=1), Uniform(count=5, tile=1)):
        products = sketch_of(rows, selector, seed).gram().about_origin[:N, :N]
        torch.testing.assert_close(products.diagonal().sqrt(), rows.norm(dim=1))


def test_a_sketch_of_everything_is_exact() -> None:
    rows, reference = columns_of_many_sizes(), gaussian(1, D, seed=4, dtype=torch.float64)
    gram = first_columns(rows, D, 1.0).gram([reference[0]])
    formed = torch.cat([rows, reference, torch.zeros(1, D, dtype=torch.float64)])
    torch.testing.assert_close(gram.about_origin, formed @ formed.T)


def test_the_fast_way_and_the_formed_sketch_agree() -> None:
    sketched = sketch_of(columns_of_many_sizes(20), NormSampling(fraction=0.2, tile=4))
    fast, formed = sketched.gram(), sketched._points.gram()
    torch.testing.assert_close(fast.squared_distances, formed.squared_distances)


def test_many_rows_are_solved_by_streaming_to_the_same_median() -> None:
    rows = columns_of_many_sizes(MANY_ROWS, 200)
    sketched = sketch_of(rows, NormSampling(fraction=0.3, tile=4))
    assert sketched.streamable is not None
    assert sketch_of(rows[1:], NormSampling(fraction=0.3, tile=4)).streamable is None
    streamed = GeometricMedian().aggregate(sketched)
    formed = GeometricMedian().aggregate(sketched._points)
    assert streamed.weights is not None
    assert formed.weights is not None
    torch.testing.assert_close(streamed.weights, formed.weights, rtol=1e-2, atol=1e-4)


def test_rows_that_are_zero_on_the_block_are_at_right_angles_to_all() -> None:
    rows = gaussian(5, 40, dtype=torch.float64)
    rows[3, :20] = 0.0
    products = first_columns(rows, 20).gram().about_origin[:5, :5]
    torch.testing.assert_close(products.diagonal().sqrt(), rows.norm(dim=1))
    assert float(products[3, [0, 1, 2, 4]].abs().max()) < 1e-9


def test_rows_that_are_not_finite_off_the_block_are_left_out() -> None:
    rows = gaussian(7, 40)
    rows[2, 39], rows[5, 38] = float("nan"), float("inf")
    sketched = first_columns(rows, 20)
    assert sketched.finite().tolist() == [True, True, False, True, True, False, True]
    result = GeometricMedian().aggregate(sketched)
    assert result.rejected.equal(~sketched.finite())
    assert bool(torch.isfinite(result.vector).all())


def test_kept_rows_have_the_sketch_of_those_rows() -> None:
    rows, indices = columns_of_many_sizes(), torch.tensor([4, 0, 2])
    whole = first_columns(rows, 30).gram().about_origin
    kept = first_columns(rows, 30).keep(indices).gram().about_origin
    torch.testing.assert_close(kept[:3, :3], whole[indices][:, indices])


def test_sums_are_exact() -> None:
    rows = columns_of_many_sizes()
    weights = torch.linspace(-0.2, 0.7, N, dtype=torch.float64)
    for exact in (False, True):
        found = first_columns(rows, 5).combine(weights, exact=exact)
        torch.testing.assert_close(found, weights @ rows)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_rows_of_any_size_have_the_same_angles(size: float) -> None:
    rows = gaussian(N, D)
    usual, scaled = (first_columns(rows * factor, 50).gram() for factor in (1.0, size))
    angles = [gram.about_origin[:N, :N] / gram.norms.outer(gram.norms) for gram in (usual, scaled)]
    torch.testing.assert_close(angles[1], angles[0], rtol=1e-4, atol=1e-4)
