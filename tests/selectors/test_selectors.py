"""All selectors: increasing tiles, the right count, frequencies equal to the probabilities."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.geometry import Block, Tiling
from holdfast.seeds import stream
from holdfast.selectors import (
    Cyclic,
    Everything,
    NormSampling,
    Selector,
    TileSelector,
    TopNorm,
    Uniform,
    selectors,
)
from holdfast.selectors._sampling import draw, inclusion_probabilities
from tests.loops import naming

FAMILY: dict[str, Callable[..., TileSelector]] = {
    "norm sampling": NormSampling,
    "top norm": TopNorm,
    "uniform": Uniform,
    "cyclic": Cyclic,
}
every_selector = pytest.mark.parametrize("make", FAMILY.values(), ids=FAMILY)
NORMS = {
    "equal": torch.ones(12, dtype=torch.float64),
    "spread": torch.arange(1.0, 13.0, dtype=torch.float64) ** 1.5,
    "some dead": torch.tensor(
        [0.0, 5.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 9.0, 0.0, 4.0], dtype=torch.float64
    ),
    "few live": torch.tensor([0.0] * 10 + [1e-200, 1e200], dtype=torch.float64),
    "all dead": torch.zeros(12, dtype=torch.float64),
}


def select(
    selector: Selector, tiling: Tiling, norms: Tensor, step: int = 0, seed: int = 0
) -> Block:
    return selector.select(tiling, norms, step=step, generator=stream(seed, "selector", step))


@every_selector
@pytest.mark.parametrize("norms", NORMS.values(), ids=NORMS)
@given(st.integers(1, 12), st.integers(0, 5))
def test_blocks_are_increasing_and_of_the_right_size(
    make: Callable[..., TileSelector], norms: Tensor, count: int, step: int
) -> None:
    tiling = Tiling((12,), 1)
    block = select(make(count=count), tiling, norms, step)
    assert bool((block.tiles.diff() > 0).all())
    assert int(block.tiles[0]) >= 0
    assert int(block.tiles[-1]) < 12
    assert block.probabilities.shape == block.tiles.shape
    assert bool(((block.probabilities > 0) & (block.probabilities <= 1)).all())
    if make is not Cyclic:
        assert len(block.tiles) == count
    assert block.is_whole == (len(block.tiles) == 12)


@every_selector
@given(st.integers(1, 5000), st.floats(1e-4, 1.0))
def test_a_fraction_is_rounded_and_never_empty(
    make: Callable[..., TileSelector], d: int, fraction: float
) -> None:
    selector = make(fraction=fraction, tile=1)
    tiling = selector.tiling((d,))
    n_chosen = selector.n_chosen(tiling.n_tiles)
    assert n_chosen == max(1, round(fraction * d))
    assert len(select(selector, tiling, torch.ones(d, dtype=torch.float64))) == n_chosen


@pytest.mark.parametrize(
    "selector", [NormSampling(count=4, tile=1), Uniform(count=4, tile=1)], ids=repr
)
@pytest.mark.parametrize("norms", NORMS.values(), ids=NORMS)
def test_frequencies_match_the_stated_probabilities(selector: TileSelector, norms: Tensor) -> None:
    """Each is within four and a half standard deviations, over 12 tiles and 4,000 draws."""
    tiling, n_draws = Tiling((12,), 1), 4000
    counts, stated = torch.zeros(12, dtype=torch.float64), torch.zeros(12, dtype=torch.float64)
    generator = stream(0, "frequencies")
    for step in range(n_draws):
        block = selector.select(tiling, norms, step=step, generator=generator)
        counts[block.tiles] += 1
        stated[block.tiles] = block.probabilities
    assert float(stated.sum()) == pytest.approx(4.0)  # so every tile that has a chance was drawn
    deviation = (stated * (1 - stated) / n_draws).sqrt()
    assert bool(((counts / n_draws - stated).abs() <= 4.5 * deviation + 1e-3).all())


def test_pairs_are_drawn_together_nearly_as_if_independent() -> None:
    """In a fixed order, systematic sampling would never draw some pairs."""
    probabilities = inclusion_probabilities(torch.arange(1.0, 13.0, dtype=torch.float64), 4)
    together, n_draws = torch.zeros(12, 12, dtype=torch.float64), 6000
    generator = stream(0, "pairs")
    for _ in range(n_draws):
        tiles = draw(probabilities, generator)
        together[tiles[:, None], tiles[None, :]] += 1.0 / n_draws
    expected = probabilities[:, None] * probabilities[None, :]
    off_diagonal = ~torch.eye(12, dtype=torch.bool)
    assert bool((together[off_diagonal] > 0.3 * expected[off_diagonal]).all())
    assert bool((together[off_diagonal] < 1.5 * expected[off_diagonal] + 0.02).all())


@given(
    st.lists(st.floats(0, 1e300), min_size=1, max_size=60), st.integers(1, 60), st.integers(0, 1000)
)
def test_probabilities_add_up_and_are_met(values: list[float], k: int, seed: int) -> None:
    norms = torch.tensor(values, dtype=torch.float64)
    k = min(k, len(values))
    probabilities = inclusion_probabilities(norms, k)
    assert bool(((probabilities >= 0) & (probabilities <= 1)).all())
    assert float(probabilities.sum()) == pytest.approx(k, abs=1e-6)
    tiles = draw(probabilities, stream(seed, "draw"))
    assert len(tiles) == k
    assert bool((tiles.diff() > 0).all())
    live = norms > 1e-250 * norms.max()
    if int(live.sum()) >= k:  # dead columns only where live ones do not suffice
        assert bool((probabilities[~live] == 0).all())
        assert (
            bool((probabilities[live] > 0).all())
            or float(probabilities.sort().values[:-k].sum()) < 1e-8
        )
    else:
        assert bool((probabilities[live] == 1).all())


def test_probabilities_are_proportional_below_one() -> None:
    norms = torch.tensor([100.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(
        inclusion_probabilities(norms, 2),
        torch.tensor([1.0, 0.5, 1 / 3, 1 / 6], dtype=torch.float64),
    )


def test_the_largest_norms_are_the_largest() -> None:
    norms = torch.tensor([3.0, 9.0, 1.0, 9.0, 9.0], dtype=torch.float64)
    block = select(TopNorm(count=2, tile=1), Tiling((5,), 1), norms)
    assert block.tiles.tolist() == [1, 3]  # of equals, the first


def test_a_cycle_visits_every_tile_once_a_round() -> None:
    tiling = Tiling((10,), 3)
    seen = [
        select(Cyclic(count=3), tiling, torch.ones(4), step).tiles.tolist() for step in range(4)
    ]
    assert seen == [[0, 1, 2], [3], [0, 1, 2], [3]]


def test_everything_is_everything() -> None:
    block = select(Everything(), Everything().tiling((3, 4)), torch.ones(2))
    assert block.is_whole
    assert block.columns.tolist() == list(range(7))
    assert block.column_probabilities.tolist() == [1.0] * 7


@pytest.mark.parametrize(
    ("sections", "tile", "widths"),
    [
        ((100,), None, 1),
        ((5000,), None, 4),
        ((65_535,), None, 32),
        ((65_536,), None, 64),
        ((10**7,), None, 64),
        ((10**7,), 8, 8),
        ((7, 9), "parameter", None),
    ],
)
def test_tiles_are_as_wide_as_the_model_allows(
    sections: tuple[int, ...], tile: int | None, widths: int | None
) -> None:
    assert NormSampling(fraction=0.1, tile=tile).tiling(sections) == Tiling(sections, widths)


@every_selector
def test_selectors_are_immutable_values_with_names(make: Callable[..., TileSelector]) -> None:
    selector = make(fraction=0.25, tile="parameter")
    with pytest.raises(AttributeError):
        selector.fraction = 0.5  # type: ignore[misc]
    assert selectors.parse(selectors.format(selector)) == selector
    assert selectors.from_json(selectors.to_json(selector)) == selector
    assert selectors.format(Everything()) == "everything"


BAD: list[tuple[dict[str, object], str]] = [
    ({"fraction": 1.5}, r"`fraction` must be in \(0, 1\], got 1.5\."),
    ({"fraction": 0.0}, r"`fraction` must be in \(0, 1\], got 0.0\."),
    ({"fraction": -0.1}, r"`fraction` must be in \(0, 1\], got -0.1\."),
    ({"fraction": float("nan")}, r"`fraction` must be in \(0, 1\], got nan\."),
    ({"fraction": True}, r"`fraction` must be in \(0, 1\], got True\."),
    ({"fraction": "0.1"}, r"`fraction` must be in \(0, 1\], got 0.1\."),
    ({"count": 0}, r"`count` must be a whole number of at least 1, got 0\."),
    ({"count": 2.0}, r"`count` must be a whole number of at least 1, got 2.0\."),
    ({}, r"Exactly one of `fraction` and `count` must be given, got neither\."),
    (
        {"fraction": 0.1, "count": 3},
        r"Exactly one of `fraction` and `count` must be given, got both\.",
    ),
    ({"fraction": 0.1, "tile": 0}, r"`tile` must be a whole number of at least 1, got 0\."),
    (
        {"fraction": 0.1, "tile": "layer"},
        r"`tile` must be a number of columns, 'parameter' or None, got 'layer'\.",
    ),
]


@every_selector
def test_bad_arguments_are_named(make: Callable[..., TileSelector]) -> None:
    for arguments, message in BAD:
        with naming(arguments), pytest.raises(ValueError, match=f"^{message}$"):
            make(**arguments)


def test_a_name_without_arguments_says_what_to_give() -> None:
    message = r"^`top-norm` must be given fraction or count, as in 'top-norm\(fraction=\.\.\.\)'\.$"
    with pytest.raises(ValueError, match=message):
        selectors.parse("top-norm")
