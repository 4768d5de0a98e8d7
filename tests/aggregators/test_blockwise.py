"""A rule on each tile: equal to a loop over tiles, certified, robust in every tile."""

import json
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.aggregators import (
    Aggregator,
    Blockwise,
    GeometricMedian,
    Mean,
    NearestNeighborMixing,
    rules,
)
from holdfast.aggregators._blockwise import _Tiles
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import ColumnRows, DenseRows, GramRows, Outcome, Tiling, mixed_rows
from holdfast.testing._rule_subject import HOSTILE
from tests.aggregators.cases import TOLERANCE
from tests.geometry.hard_rows import FAMILIES, instance
from tests.geometry.test_certificates import minima
from tests.loops import naming
from tests.oracle.geometric_median import PreciseMedian
from tests.oracle.rules import tile_by_tile
from tests.samples import common, gaussian

SECTIONS = (130, 1, 64, 7)
MANY_AT_ONCE = ["geometric-median", "radius-filter", "radius-filter(radius=3.0)", "mean",
                "mixing(n_bad=3) | geometric-median", "mixing(n_bad=3) | radius-filter",
                "mixing(n_bad=3) | mean"]  # fmt: skip
ONE_BY_ONE = ["medoid", "krum(n_bad=3)", "covariance-filter", "norm-filter(n_bad=3)",
              "mixing(n_bad=3) | medoid", "clipping(n_bad=3) | mean"]  # fmt: skip


def parameters(rows: Tensor, sections: tuple[int, ...] = SECTIONS) -> list[Tensor]:
    return list(rows.split(sections, dim=1))


def kinds_of_rows() -> dict[str, Tensor]:
    """Rows of which some or all tiles are unusual."""
    d = sum(SECTIONS)
    honest = gaussian(11, d)
    equal = honest.clone()
    equal[:4] = honest[4:].mean(0) + 0.1
    partly_zero = honest.clone()
    partly_zero[:, 3:40] = 0
    partly_zero[:7, 64:140] = 0
    line = honest[:1] * torch.arange(1.0, 12.0)[:, None] ** 1.3  # without ties
    sized = honest * torch.logspace(-25, 25, d)
    return {
        "honest": honest,
        "equal rows": equal,
        "dead columns": partly_zero,
        "a large common part": common(11, d, 1e5),
        "on a line": line,
        "columns of all sizes": sized,
        "flipped": torch.cat([-100 * honest[:4], honest[4:]]),
        "huge": torch.cat([1e30 * honest[:4], honest[4:]]),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tile", [1, 16, 64, "parameter"])
@pytest.mark.parametrize("text", MANY_AT_ONCE)
def test_many_tiles_at_once_equal_a_loop(text: str, tile: int | str, dtype: torch.dtype) -> None:
    assert_equals_a_loop(text, tile, dtype)


@pytest.mark.parametrize("tile", [64, "parameter"])
@pytest.mark.parametrize("text", ONE_BY_ONE)
def test_other_rules_equal_a_loop(text: str, tile: int | str) -> None:
    """They are one: what can differ is which columns a tile has, and where its result goes."""
    assert_equals_a_loop(text, tile, torch.float32)


def assert_equals_a_loop(text: str, tile: int | str, dtype: torch.dtype) -> None:
    rule = rules.parse(text)
    for kind, rows in kinds_of_rows().items():
        if tile == 1 and kind != "honest":
            continue
        rows = rows.to(dtype)
        found = Blockwise(tile=tile, rule=rule).aggregate(parameters(rows))  # type: ignore[arg-type]
        tiling = Tiling(SECTIONS, None if tile == "parameter" else int(tile))
        wanted, weights = tile_by_tile(rule, rows, tiling)
        error = tiling.norms(found.vector.double() - wanted.double())
        lengths = torch.stack([tiling.norms(row) for row in rows.double()])
        with naming(kind):
            assert found.tile_weights is not None
            assert found.tile_weights.shape == weights.shape
            # The gap is 1e-6, and so the distance from the optimum at most about 1e-3.
            limit = max(2e-3, TOLERANCE[dtype])
            scale = lengths.amax(0) if text.endswith("mean") else usual(lengths)
            assert bool((error <= limit * scale).all())


def usual(lengths: Tensor) -> Tensor:
    """[t] the median of the lengths [n, t] of rows in each tile; the largest if that is zero."""
    median = lengths.median(dim=0).values
    return torch.where(median > 0, median, lengths.amax(0))


@pytest.mark.parametrize("n_nan", [0, 2])
@pytest.mark.parametrize("inner", ["geometric-median", "radius-filter", "mean"])
def test_mixing_many_tiles_equals_mixing_each(
    inner: str, n_nan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vector, weights and rejected rows, also when rows are known to be bad."""
    rule = rules.parse(f"mixing(n_bad=4) | {inner}")
    rows = gaussian(11, 256)
    rows[:2] *= -100
    rows[2:4, 64:] += 50
    rows[4 : 4 + n_nan, 9] = torch.nan
    each = [rule.aggregate(_with_lost(tile, n_nan)) for tile in rows.split(64, dim=1)]
    monkeypatch.delattr(_Tiles, "_solve_one")  # all tiles are solved together
    found = Blockwise(tile=64, rule=rule).aggregate(rows)
    assert found.tile_weights is not None
    # A gap of 1e-6 leaves a distance of about 1e-3.
    vector = torch.cat([one.vector for one in each])
    torch.testing.assert_close(found.vector, vector, rtol=0, atol=2e-3)
    weights = torch.stack([one.weights for one in each])  # type: ignore[misc]
    torch.testing.assert_close(found.tile_weights, weights, rtol=0, atol=2e-3)
    assert torch.equal(found.rejected, torch.stack([one.rejected for one in each]).all(0))
    assert bool(found.rejected[:2].all()) == (inner == "radius-filter")


def _with_lost(tile: Tensor, n_nan: int) -> Tensor:
    tile = tile.clone()
    tile[4 : 4 + n_nan] = torch.nan
    return tile


@pytest.mark.parametrize("text", MANY_AT_ONCE)
def test_tile_weights_reproduce_the_vector(text: str) -> None:
    rows = gaussian(11, sum(SECTIONS), dtype=torch.float64)
    rows[:3] *= -100
    found = Blockwise(tile=16, rule=text).aggregate(parameters(rows))
    assert found.weights is None
    assert found.tile_weights is not None
    for piece in Tiling(SECTIONS, 16).pieces:
        for i in range(piece.n_tiles):
            at = slice(piece.start + i * piece.width, piece.start + (i + 1) * piece.width)
            combined = found.tile_weights[piece.first + i] @ rows[:, at]
            torch.testing.assert_close(found.vector[at], combined)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_certificate_is_false(family: str) -> None:
    """Two sets of the same rows go together through the solver for many sets."""
    n_certified = n_cases = 0
    for index, optimum in list(enumerate(minima(family)))[::3]:
        hard = instance(family, index)
        inner: Aggregator = GeometricMedian(tolerance=hard.tolerance)
        if hard.n_near is not None:
            inner = NearestNeighborMixing(n_bad=len(hard.rows) - hard.n_near, rule=inner)
        rule = Blockwise(tile="parameter", rule=inner)
        result = rule.aggregate([hard.rows, hard.rows], row_weights=hard.row_weights)
        precise = PreciseMedian(hard.points(), hard.row_weights)
        # Batched products may round the two sets in different ways, by where they lie in memory.
        both = [half.tolist() for half in result.vector.double().chunk(2)]
        true_gap = max(precise.gap(one, mpmath.mpf(optimum)) for one in both)
        with naming(family, index, result.outcome, true_gap, result.gap):
            assert result.gap is not None
            assert true_gap <= result.gap
        n_certified += result.gap <= hard.tolerance
        n_cases += 1
    assert n_certified >= 0.5 * n_cases


@pytest.mark.parametrize("kind", sorted(HOSTILE))
@pytest.mark.parametrize(
    "text",
    ["geometric-median", "radius-filter", "medoid"]
    + [f"mixing(n_bad=5) | {inner}" for inner in ("geometric-median", "radius-filter")],
)
def test_breakdown_in_every_tile(text: str, kind: str) -> None:
    """A bare minority in each tile, another one in each of three parameters."""
    rows = gaussian(11, 192) + 20
    bad = rows.clone()
    for tile in range(3):
        # A row that is not finite is left out of every tile, so these must be the same in each.
        first = 4 * tile if bool(HOSTILE[kind](rows).isfinite().all()) else 0
        liars, at = (torch.arange(5) + first) % 11, slice(64 * tile, 64 * tile + 64)
        bad[liars, at] = HOSTILE[kind](rows[liars, at])
    vector = Blockwise(tile=64, rule=text)(bad)
    for tile in range(3):
        at = slice(64 * tile, 64 * tile + 64)
        assert float((vector[at] - rows[:, at].mean(0)).norm()) < 16


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 12),
    sections=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    tile=st.sampled_from([1, 2, 3, 7, 16, 64, "parameter"]),
    text=st.sampled_from(["geometric-median", "radius-filter", "mean", "covariance-filter"]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    exponent=st.integers(-6, 6),
    seed=st.integers(0, 1000),
)
def test_each_tile_is_a_combination_that_its_rule_makes(
    n: int,
    sections: list[int],
    tile: int | str,
    text: str,
    dtype: torch.dtype,
    exponent: int,
    seed: int,
) -> None:
    rows = gaussian(n, sum(sections), seed).mul(10.0**exponent).to(dtype)
    parts = parameters(rows, tuple(sections))
    rule = Blockwise(tile=tile, rule=text)  # type: ignore[arg-type]
    found = rule.aggregate(parts)
    weights = found.tile_weights
    assert weights is not None
    tiling = rule.tiling(tuple(sections))
    assert weights.shape == (tiling.n_tiles, n)
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(1), torch.ones(len(weights), dtype=torch.float64))
    assert found.vector.dtype == dtype
    per_column = tiling.expand(torch.arange(tiling.n_tiles), torch.arange(tiling.n_tiles))
    combined = (weights[per_column].T * rows.double()).sum(0)
    slack = TOLERANCE[dtype] * float(rows.double().abs().max())
    assert float((combined - found.vector.double()).abs().max()) <= slack
    # Tiles are independent: the first parameter alone gives the same.
    alone = rule.aggregate([parts[0]])
    assert alone.vector.equal(found.vector[: sections[0]]) or text != "mean"
    torch.testing.assert_close(
        alone.vector.double(), found.vector[: sections[0]].double(), atol=slack, rtol=1e-3
    )


def test_a_lost_row_is_left_out_of_every_tile() -> None:
    rows = gaussian(9, 40)
    rows[2, 7], rows[5, 39] = torch.nan, torch.inf
    found = Blockwise(tile=8, rule="geometric-median").aggregate(rows)
    kept = torch.tensor([0, 1, 3, 4, 6, 7, 8])
    wanted = Blockwise(tile=8, rule="geometric-median").aggregate(rows[kept])
    assert found.rejected.tolist() == [i in (2, 5) for i in range(9)]
    assert found.vector.equal(wanted.vector)
    assert found.tile_weights is not None
    assert bool((found.tile_weights[:, [2, 5]] == 0).all())
    with pytest.raises(NonFiniteRowsError):
        Blockwise(tile=8, rule="geometric-median")(rows[[2, 5, 0]].clone())


def test_a_rule_knows_how_many_rows_are_lost() -> None:
    """Two of three bad rows are known, so that the norm filter drops one more and not three."""
    rows = gaussian(9, 40)
    rows[0], rows[1, 3] = torch.nan, torch.nan
    found = Blockwise(tile=8, rule="norm-filter(n_bad=3)").aggregate(rows)
    assert found.tile_weights is not None
    assert (found.tile_weights > 0).sum(1).tolist() == [6] * 5


def test_rejected_means_in_every_tile() -> None:
    rows = gaussian(9, 128)
    rows[0] *= 1e4
    rows[1, :64] *= 1e4
    found = Blockwise(rule="radius-filter").aggregate(rows)
    assert found.rejected.tolist() == [True] + [False] * 8
    assert found.tile_weights is not None
    assert found.tile_weights[:, 1].gt(0).tolist() == [False, True]


def test_gap_and_outcome_are_the_worst_of_all_tiles() -> None:
    rows = gaussian(9, 128)
    rows[:, 64:] = rows[:1, 64:]
    found = Blockwise(rule="geometric-median").aggregate(rows)
    assert found.outcome is Outcome.CERTIFIED
    assert found.gap is not None
    assert 0 < found.gap <= 1e-6
    same = Blockwise(rule="geometric-median").aggregate(rows[:, 64:])
    assert (same.outcome, same.gap) == (Outcome.EXACT, 0.0)
    assert Blockwise(rule="mean").aggregate(rows).gap is None


def test_row_weights_are_those_of_every_tile() -> None:
    rows, weights = gaussian(9, 50), torch.arange(9.0)
    found = Blockwise(tile=8, rule="geometric-median").aggregate(rows, row_weights=weights)
    wanted, _ = tile_by_tile(GeometricMedian(), rows, Tiling((50,), 8), row_weights=weights)
    torch.testing.assert_close(found.vector, wanted, atol=1e-3, rtol=1e-3)
    assert found.rejected[0]
    assert found.tile_weights is not None
    assert found.tile_weights.shape == (7, 9)


def test_other_rows_than_dense_ones() -> None:
    rows = gaussian(8, 100)
    matrix = torch.full((4, 8), 0.0, dtype=torch.float64)
    for i in range(4):
        matrix[i, 2 * i : 2 * i + 2] = 0.5
    dense = DenseRows(rows)
    mixed = mixed_rows(dense, matrix, dense.gram())
    assert isinstance(mixed, ColumnRows)
    found = Blockwise(tile=16, rule="geometric-median")(mixed)
    wanted = Blockwise(tile=16, rule="geometric-median")(rows.view(4, 2, 100).mean(1))
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def test_the_parts_of_a_block_have_their_own_tiles() -> None:
    """As the exchange sends them: tiles of 4 of two parameters, one after the other."""
    rows = gaussian(7, 20)
    tiling = Tiling((20,), 4)
    chosen = DenseRows(rows).tiles(tiling, torch.tensor([1, 3]))
    whole = Blockwise(tile=4, rule="geometric-median")(rows)
    part = Blockwise(tile=4, rule="geometric-median")(chosen)
    torch.testing.assert_close(part, torch.cat([whole[4:8], whole[12:16]]))


@pytest.mark.parametrize("bad", [{"tile": 0}, {"tile": "layer"}, {"tile": True}, {"rule": 3}],
                         ids=str)  # fmt: skip
def test_bad_arguments(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^`\w+` must .*, got"):
        Blockwise(**{"rule": "medoid", **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "requirement"), [
    ("coordinate-median", "read inner products or lengths only"),
    ("bulyan(n_bad=1)", "read inner products or lengths only"),
    ("sketched | medoid", "read inner products or lengths only"),
    ("blockwise | medoid", "read inner products or lengths only"),
    ("zeno(n_bad=1)", "need no `score`, which has no meaning for a tile"),
    ("trusted-reference", "need no `reference`, which has no meaning for a tile"),
])  # fmt: skip
def test_rules_that_do_not_fit_are_refused(text: str, requirement: str) -> None:
    with pytest.raises(ValueError, match=rf"^`rule` must {requirement}, got \w+\("):
        Blockwise(rule=text)


def test_rows_without_columns_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^GramRows cannot be read by column"):
        Blockwise(rule="medoid")(GramRows(torch.eye(3)))
    with pytest.raises(ValueError, match=r"^`row_weights` is not accepted by Blockwise"):
        Blockwise(rule="krum(n_bad=1)")(gaussian(5, 4), row_weights=torch.ones(5))


def test_texts_and_json() -> None:
    rule = rules.parse("blockwise(tile=16) | mixing(n_bad=3) | geometric-median")
    assert rules.format(rule) == "blockwise(tile=16) | mixing(n_bad=3) | geometric-median"
    assert rules.from_json(json.loads(json.dumps(rules.to_json(rule)))) == rule
    assert rules.format(Blockwise(rule=Mean())) == "blockwise | mean"
    assert Blockwise(rule="krum(n_bad=2)").n_resisted(9) == 2
    assert Blockwise(rule="krum(n_bad=2)").n_needed == 7


@pytest.mark.parametrize("text", [*MANY_AT_ONCE, "medoid"])
def test_weights_from_many_gram_matrices(text: str) -> None:
    rule: Aggregator = rules.parse(text)
    for kind, rows in kinds_of_rows().items():
        sets = rows[:, :192].double().unfold(1, 16, 16).transpose(0, 1)
        grams = torch.bmm(sets, sets.mT)
        found = rule.weights_from_grams(grams)
        wanted = torch.stack([rule.weights_from_gram(gram) for gram in grams])
        difference = torch.bmm((found - wanted)[:, None], sets)[:, 0].norm(dim=1)
        with naming(kind):
            assert found.shape == (12, 11)
            assert found.dtype == torch.float64
            assert bool((difference <= 5e-3 * usual(sets.norm(dim=2).T)).all())


def test_approximate_weights_are_those_of_the_common_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sets that are certain have the same weights, and no set is solved alone."""
    alone, solve = [], Aggregator.weights_from_gram

    def counted(rule: Aggregator, gram: Tensor, **arguments: Any) -> Tensor:
        alone.append(gram)
        return solve(rule, gram, **arguments)

    monkeypatch.setattr(Aggregator, "weights_from_gram", counted)
    sets = gaussian(6 * 9, 7, dtype=torch.float64).view(6, 9, 7)
    sets[3] = 1e5 + sets[3]  # digits of its distances are lost
    grams = torch.bmm(sets, sets.mT)
    for text, n_alone in (
        ("geometric-median", 1),
        ("radius-filter", 1),
        ("mixing(n_bad=2) | geometric-median", 1),
        ("mixing(n_bad=2) | radius-filter", 1),
        ("mixing(n_bad=2) | mean", 1),
        ("medoid", 6),
    ):
        rule = rules.parse(text)
        alone.clear()
        careful = rule.weights_from_grams(grams)
        assert len(alone) == n_alone, text
        alone.clear()
        quick = rule.weights_from_grams(grams, approximate=True)
        assert len(alone) == (6 if text == "medoid" else 0)
        certain = torch.arange(6) != 3
        assert torch.equal(careful[certain], quick[certain])


def test_weights_from_many_gram_matrices_with_row_weights() -> None:
    sets, weights = gaussian(7 * 5, 9, dtype=torch.float64).view(7, 5, 9), torch.arange(5.0)
    grams = torch.bmm(sets, sets.mT)
    for text in ("geometric-median", "radius-filter", "mean", "medoid"):
        rule = rules.parse(text)
        found = rule.weights_from_grams(grams, row_weights=weights)
        wanted = [rule.weights_from_gram(gram, row_weights=weights) for gram in grams]
        torch.testing.assert_close(found, torch.stack(wanted), atol=2e-3, rtol=0)
        assert bool((found[:, 0] == 0).all())


@pytest.mark.parametrize(("grams", "requirement"), [
    (torch.zeros(3, 3), r"be a floating tensor \[t, n, n\], got \(3, 3\)"),
    (torch.zeros(2, 3, 3, dtype=torch.int64), r"be a floating tensor"),
    ([1.0], r"be a floating tensor .*, got list"),
    (torch.zeros(2, 3, 4), "have as many rows as columns"),
    (torch.full((1, 2, 2), torch.nan), "be finite, got NaN or infinity"),
    (-torch.ones(1, 2, 2), "have squared norms on their diagonals"),
])  # fmt: skip
def test_bad_gram_matrices(grams: object, requirement: str) -> None:
    with pytest.raises(ValueError, match=rf"^`grams` must {requirement}"):
        GeometricMedian().weights_from_grams(grams)  # type: ignore[arg-type]
