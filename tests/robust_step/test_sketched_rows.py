"""The sketch: unbiased inner products, exact lengths, and the same whichever way it is read."""

import pytest
import torch
from holdfast.memory import AugmentedRows
from torch import Tensor

from holdfast import SketchedGeometricMedian
from holdfast.aggregators import CallContext, GeometricMedian
from holdfast.geometry import Block, DenseRows, Tiling
from holdfast.robust_step import SketchedRows, importance_weighted
from holdfast.seeds import stream
from holdfast.selectors import NormSampling, Uniform
from tests.samples import gaussian

N, D = 6, 400


def columns_of_many_sizes(n: int = N, d: int = D, seed: int = 0) -> Tensor:
    """Columns whose sizes spread over three decades, as those of gradients do, so that norms say something."""
    return gaussian(n, d, seed, torch.float64) * 10 ** (
        3 * torch.rand(d, generator=stream(seed, "sizes"), dtype=torch.float64) - 2
    )


def drawn(augmented: AugmentedRows, selector: NormSampling | Uniform, seed: int) -> Block:
    tiling = selector.tiling(augmented.rows.sections)
    return selector.select(
        tiling, augmented.scores(tiling, capped=True), step=0, generator=stream(seed, "block")
    )


@pytest.mark.parametrize(
    "selector",
    [NormSampling(count=8, tile=10), NormSampling(count=60, tile=1), Uniform(count=10, tile=10)],
    ids=repr,
)
def test_the_importance_weighted_gram_matrix_is_unbiased(selector: NormSampling | Uniform) -> None:
    """The mean over 800 draws is within four and a half standard errors of the Gram matrix, in every entry."""
    rows = DenseRows(columns_of_many_sizes())
    augmented = AugmentedRows(rows)
    tiling = selector.tiling(rows.sections)
    scores, generator = augmented.scores(tiling, capped=True), stream(0, "unbiased")
    estimates = []
    for _ in range(800):
        sketch = importance_weighted(
            rows, selector.select(tiling, scores, step=0, generator=generator)
        )
        estimates.append(sketch @ sketch.T)
    found, exact = torch.stack(estimates), columns_of_many_sizes() @ columns_of_many_sizes().T
    error = found.std(0) / len(found) ** 0.5
    assert bool(((found.mean(0) - exact).abs() <= 4.5 * error).all())


def test_norm_sampling_estimates_better_than_uniform() -> None:
    rows = DenseRows(columns_of_many_sizes())
    augmented, exact = AugmentedRows(rows), columns_of_many_sizes() @ columns_of_many_sizes().T
    errors = {}
    for selector in (NormSampling(count=80, tile=1), Uniform(count=80, tile=1)):
        sketches = [
            importance_weighted(rows, drawn(augmented, selector, seed)) for seed in range(50)
        ]
        errors[type(selector)] = sum(
            float((sketch @ sketch.T - exact).norm()) for sketch in sketches
        )
    assert errors[NormSampling] < 0.3 * errors[Uniform]


@pytest.mark.parametrize("carries", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_lengths_are_exact_whatever_is_drawn(carries: bool, seed: int) -> None:
    """About what is carried, every row is as long as it is."""
    rows, carried = columns_of_many_sizes(seed=seed), 5 * columns_of_many_sizes(1, seed=9)[0]
    augmented = AugmentedRows(DenseRows(rows), carried if carries else None)
    sketched = SketchedRows(augmented, drawn(augmented, NormSampling(count=5, tile=1), seed))
    gram = sketched.gram()
    assert not gram.exact  # so that the products are about what is carried
    torch.testing.assert_close(gram.products.diagonal()[:N].sqrt(), rows.norm(dim=1))


@pytest.mark.parametrize("carries", [False, True])
def test_a_sketch_of_everything_is_exact(carries: bool) -> None:
    rows, carried = (
        columns_of_many_sizes(),
        5 * columns_of_many_sizes(1, seed=9)[0] if carries else None,
    )
    reference = gaussian(1, D, seed=4, dtype=torch.float64)[0]
    tiling = Tiling((D,), 10)
    block = Block(tiling, torch.arange(40), torch.ones(40, dtype=torch.float64))
    gram = SketchedRows(AugmentedRows(DenseRows(rows), carried), block).gram([reference])
    formed = torch.cat(
        [
            rows + (0.0 if carried is None else carried),
            reference[None],
            torch.zeros(1, D, dtype=torch.float64),
        ]
    )
    torch.testing.assert_close(gram.about_origin, formed @ formed.T)


@pytest.mark.parametrize("carries", [False, True])
def test_the_fast_way_and_the_formed_sketch_agree(carries: bool) -> None:
    rows, carried = (
        columns_of_many_sizes(20),
        columns_of_many_sizes(1, seed=9)[0] if carries else None,
    )
    augmented = AugmentedRows(DenseRows(rows), carried)
    sketched = SketchedRows(augmented, drawn(augmented, NormSampling(fraction=0.2, tile=4), 0))
    fast, formed = sketched.gram(), sketched._points.gram()
    torch.testing.assert_close(fast.squared_distances, formed.squared_distances)


def test_many_rows_are_swept_and_few_are_not() -> None:
    """Above a few hundred rows the solver iterates on the sketch itself; the weights are those of its Gram matrix."""
    rows = gaussian(300, 2000)
    augmented = AugmentedRows(DenseRows(rows), gaussian(1, 2000, seed=5)[0])
    sketched = SketchedRows(augmented, drawn(augmented, NormSampling(fraction=0.3, tile=8), 0))
    assert sketched.streamable is not None
    assert sketched.keep(torch.arange(50)).streamable is None
    swept = GeometricMedian().aggregate(sketched)
    solved = GeometricMedian()._solve(sketched.gram(), CallContext())
    assert swept.weights is not None
    torch.testing.assert_close(swept.weights, solved.weights, rtol=1e-2, atol=1e-5)
    torch.testing.assert_close(swept.vector, augmented.combine(swept.weights))


def test_rows_that_the_block_misses_stand_apart() -> None:
    """A row of which nothing was drawn keeps its length, at a right angle to the others."""
    rows = gaussian(5, 40, dtype=torch.float64)
    rows[3, :20] = 0.0
    block = Block(Tiling((40,), 1), torch.arange(20), torch.full((20,), 0.5, dtype=torch.float64))
    gram = SketchedRows(AugmentedRows(DenseRows(rows)), block).gram()
    products = gram.about_origin[:5, :5]
    torch.testing.assert_close(products.diagonal().sqrt(), rows.norm(dim=1))
    assert products[3, [0, 1, 2, 4]].abs().max() < 1e-9


def test_rows_that_are_not_finite_off_the_block_are_left_out() -> None:
    rows = gaussian(7, 40)
    rows[2, 39] = float("nan")
    rows[5, 38] = float("inf")
    block = Block(Tiling((40,), 1), torch.arange(20), torch.full((20,), 0.5, dtype=torch.float64))
    result = GeometricMedian().aggregate(SketchedRows(AugmentedRows(DenseRows(rows)), block))
    assert result.rejected.tolist() == [False, False, True, False, False, True, False]
    assert bool(torch.isfinite(result.vector).all())


@pytest.mark.parametrize("carries", [False, True])
def test_rows_that_agree_are_returned(carries: bool) -> None:
    rows, carried = gaussian(1, 400).repeat(9, 1), 3 * gaussian(1, 400, seed=1)[0]
    augmented = AugmentedRows(DenseRows(rows), carried if carries else None)
    for seed in range(5):
        vector = (
            GeometricMedian()
            .aggregate(
                SketchedRows(augmented, drawn(augmented, NormSampling(count=3, tile=8), seed))
            )
            .vector
        )
        torch.testing.assert_close(
            vector, rows[0] + carried if carries else rows[0], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_sketched_median_is_near_the_exact_one(dtype: torch.dtype) -> None:
    rows = columns_of_many_sizes(15, 5000).to(dtype)
    rows[:6] *= -100
    rule = SketchedGeometricMedian(fraction=0.1)
    found = rule.aggregate(rows, generator=stream(0, "sketched"))
    exact = GeometricMedian()(rows.double())
    assert found.vector.dtype == dtype
    assert found.weights is not None
    assert float((found.vector.double() - exact).norm()) < 0.1 * float(exact.norm())


def test_the_sketched_median_takes_row_weights_and_whole_fractions() -> None:
    rows, weights = gaussian(9, 500), torch.arange(9.0)
    found = SketchedGeometricMedian(fraction=1.0)(
        rows, row_weights=weights, generator=torch.Generator()
    )
    torch.testing.assert_close(found, GeometricMedian()(rows, row_weights=weights))
    part = SketchedGeometricMedian(fraction=0.5).aggregate(
        rows, row_weights=weights, generator=torch.Generator()
    )
    assert part.weights is not None
    assert float(part.weights[0]) == 0.0


@pytest.mark.parametrize(
    "bad", [{"fraction": 0.0}, {"tolerance": -1.0}, {"tile": "layer"}], ids=str
)
def test_bad_arguments_of_the_sketched_median(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^`\w+` must .*, got"):
        SketchedGeometricMedian(**bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^`generator` must be given to SketchedGeometricMedian"):
        SketchedGeometricMedian()(gaussian(3, 4))
