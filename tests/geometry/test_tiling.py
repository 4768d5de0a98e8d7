"""Tiles: each column in exactly one, none across sections; putting back undoes gathering."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.geometry import Tiling

SECTIONS = st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 0)
WIDTHS = st.one_of(st.none(), st.integers(1, 50))


@given(SECTIONS, WIDTHS)
def test_every_column_is_in_one_tile_of_one_section(sections: list[int], width: int | None) -> None:
    tiling = Tiling(tuple(sections), width)
    section_of = torch.repeat_interleave(torch.arange(len(sections)), torch.tensor(sections))
    columns = [tiling.columns(torch.tensor([tile])) for tile in range(tiling.n_tiles)]
    assert torch.cat(columns).tolist() == list(range(tiling.d))
    for column in columns:
        assert bool((section_of[column] == section_of[column[0]]).all())
        assert width is None or len(column) <= width


@given(SECTIONS, WIDTHS, st.integers(0, 10**6))
def test_what_is_taken_can_be_put_back(sections: list[int], width: int | None, seed: int) -> None:
    tiling = Tiling(tuple(sections), width)
    generator = torch.Generator().manual_seed(seed)
    tiles = torch.nonzero(torch.rand(tiling.n_tiles, generator=generator) < 0.5)[:, 0]
    if len(tiles) == 0:
        return
    vector = torch.randn(tiling.d, generator=generator)
    taken = tiling.take(vector, tiles)
    assert taken.equal(vector[tiling.columns(tiles)])
    assert len(taken) == tiling.n_columns(tiles)
    rest = vector.clone()
    tiling.clear(rest, tiles)
    assert rest.count_nonzero() == vector.count_nonzero() - taken.count_nonzero()
    tiling.put(rest, tiles, taken)
    assert rest.equal(vector)
    assert tiling.expand(tiles.double(), tiles).equal(
        torch.cat(
            [
                torch.full((len(tiling.columns(tile[None])),), float(tile), dtype=torch.float64)
                for tile in tiles
            ]
        )
    )


@given(SECTIONS, WIDTHS)
def test_sums_and_norms_are_by_tile(sections: list[int], width: int | None) -> None:
    tiling = Tiling(tuple(sections), width)
    vector = torch.arange(tiling.d, dtype=torch.float64)
    by_tile = [vector[tiling.columns(torch.tensor([tile]))] for tile in range(tiling.n_tiles)]
    torch.testing.assert_close(tiling.sums(vector), torch.stack([part.sum() for part in by_tile]))
    torch.testing.assert_close(tiling.norms(vector), torch.stack([part.norm() for part in by_tile]))


@pytest.mark.parametrize("width", [0, -1, 1.5, True])
def test_a_width_is_a_count(width: object) -> None:
    with pytest.raises(ValueError, match=r"^`width` must be a whole number of at least 1, got"):
        Tiling((3,), width)  # type: ignore[arg-type]
