"""The block that all agree on: waits, medians, lies, ties, states."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.exchange import AgreedBlock
from holdfast.geometry import Tiling
from holdfast.seeds import stream


def reports_of(n: int, n_tiles: int, *path: int) -> Tensor:
    generator = stream(0, "reports", *path)
    return torch.rand(n, n_tiles, generator=generator).bfloat16()


def by_loop(agreed: AgreedBlock, reports: Tensor) -> list[int]:
    """The same choice, tile by tile."""
    n = len(reports)
    middle = reports.float().sort(0).values[(n - 1) // 2].tolist()
    waits = agreed.waits.tolist()

    def rank(tile: int) -> tuple[float, ...]:
        if waits[tile] >= agreed.max_wait:
            return (0, -waits[tile], tile)
        if waits[tile] < agreed.min_wait:
            return (2, 0, tile)
        return (1, -middle[tile], -waits[tile], tile)

    return sorted(sorted(range(len(waits)), key=rank)[: agreed.n_sent])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 9),
    n_tiles=st.integers(1, 60),
    send=st.floats(0.02, 1.0),
    levels=st.integers(1, 50),
)
def test_the_choice_is_that_of_a_loop(
    seed: int, n: int, n_tiles: int, send: float, levels: int
) -> None:
    if round(send * n_tiles) < 1:
        return
    agreed = AgreedBlock(Tiling((n_tiles,), 1), send=send, max_wait=2 * n_tiles)
    for step in range(30):
        generator = stream(seed, "few levels", step)
        # Few levels make ties.
        reports = torch.randint(levels, (n, n_tiles), generator=generator).bfloat16()
        block = agreed.choose(reports)
        assert block.tiles.tolist() == by_loop(agreed, reports)
        agreed.sent(block)


def test_a_tile_waits_at_least_the_minimum_and_never_longer_than_the_bound() -> None:
    tiling = Tiling((97,), 1)
    agreed = AgreedBlock(tiling, send=0.1, min_wait=4, max_wait=15)
    last = torch.full((97,), -(10**9))
    last_seen = torch.zeros(97, dtype=torch.long)
    for step in range(400):
        # Everybody wants the same tiles in every round, and nobody the others.
        reports = torch.zeros(5, 97, dtype=torch.bfloat16)
        reports[:, 50:80] = 1.0
        tiles = agreed.choose(reports).tiles
        assert bool((step - last[tiles] >= 4).all())
        last[tiles] = step
        last_seen[tiles] = step
        assert int(step - last_seen.min()) <= agreed.longest_wait
        agreed.sent(agreed.choose(reports))
    assert bool((last >= 0).all())


@pytest.mark.parametrize("lie", [torch.nan, torch.inf, -torch.inf, 1e38, 0.0, -5.0])
def test_a_minority_cannot_lift_a_tile_above_the_honest_reports(lie: float) -> None:
    n_tiles = 50
    agreed = AgreedBlock(Tiling((n_tiles,), 1), send=0.1)
    reports = reports_of(11, n_tiles)
    honest = reports[5:].float()
    reports[:5, 20:] = lie  # the minority is for or against the tiles from 20 on
    reports[:5, :20] = 0.5
    scores = agreed._median(reports).view(torch.bfloat16).float()
    assert bool((scores >= honest.min(0).values).all())
    assert bool((scores <= honest.max(0).values).all())
    assert len(agreed.choose(reports).tiles) == 5


def test_without_reports_the_block_depends_on_the_round_only() -> None:
    one, other = (AgreedBlock(Tiling((64,), 1), send=0.1, report_every=None) for _ in range(2))
    counts = torch.zeros(64)
    for _ in range(400):
        block = one.choose()
        assert torch.equal(block.tiles, other.choose().tiles)
        counts[block.tiles] += 1
        one.sent(block)
        other.sent(block)
    assert not one.wants_reports
    assert bool((counts > 20).all())  # 37.5 times on average
    with pytest.raises(ValueError, match="`reports` must be given in rounds with reports"):
        one.choose(reports_of(3, 64))


def test_reports_serve_for_several_rounds() -> None:
    agreed = AgreedBlock(Tiling((20,), 1), send=0.1, min_wait=1, report_every=3)
    reports = torch.arange(20.0).expand(3, -1).bfloat16()
    found = []
    for step in range(6):
        block = agreed.choose(reports if step % 3 == 0 else None)
        found.append(block.tiles.tolist())
        agreed.sent(block)
    assert found == [[18, 19], [16, 17], [14, 15]] * 2


def test_a_choice_that_is_not_sent_changes_nothing() -> None:
    agreed = AgreedBlock(Tiling((20,), 1), send=0.1, report_every=2)
    before = agreed.state_dict()
    agreed.choose(reports_of(3, 20))
    after = agreed.state_dict()
    assert before["round"] == after["round"]
    assert torch.equal(before["waits"], after["waits"])
    assert torch.equal(before["scores"], after["scores"])


def test_a_restored_agreement_goes_on_equally() -> None:
    def new() -> AgreedBlock:
        return AgreedBlock(Tiling((40,), 2), send=0.1, report_every=2)

    one, other = new(), new()
    for step in range(20):
        if step == 7:
            other.load_state_dict(one.state_dict())
        reports = reports_of(4, 20, step) if one.wants_reports else None
        block = one.choose(reports)
        if step >= 7:
            assert torch.equal(block.tiles, other.choose(reports).tiles)
            other.sent(block)
        one.sent(block)


def test_defaults_follow_the_share() -> None:
    agreed = AgreedBlock(Tiling((64_000,), 64), send=0.02)
    assert (agreed.n_sent, agreed.min_wait, agreed.max_wait) == (20, 5, 200)
    whole = AgreedBlock(Tiling((64,), 1), send=1.0)
    assert (whole.n_sent, whole.min_wait) == (64, 1)


def test_bytes_instead_of_a_share() -> None:
    tiling = Tiling((64_000,), 64)
    share = AgreedBlock.share_of(tiling, 2_000 + 10 * 256)
    assert AgreedBlock(tiling, send=share).n_sent == 10
    assert AgreedBlock.share_of(tiling, 10**9) == 1.0
    with pytest.raises(ValueError, match="`n_bytes` must be at least 2257"):
        AgreedBlock.share_of(tiling, 1_000)


def test_bad_input() -> None:
    tiling = Tiling((640,), 64)
    with pytest.raises(ValueError, match="`send` must be enough for one of the 10 tiles"):
        AgreedBlock(tiling, send=0.04)
    with pytest.raises(ValueError, match=r"`send` must be in \(0, 1\]"):
        AgreedBlock(tiling, send=0.0)
    with pytest.raises(ValueError, match="`min_wait` must be at most 5"):
        AgreedBlock(tiling, send=0.2, min_wait=6)
    with pytest.raises(ValueError, match="`max_wait` must be a whole number of at least 3"):
        AgreedBlock(tiling, send=0.2, min_wait=3, max_wait=2)
    agreed = AgreedBlock(tiling, send=0.2)
    with pytest.raises(ValueError, match="`reports` must be given in rounds with reports"):
        agreed.choose()
    with pytest.raises(ValueError, match=r"`reports` must have shape \[n, 10\], got \(3, 9\)"):
        agreed.choose(torch.ones(3, 9))
    with pytest.raises(ValueError, match=r"`state\['waits'\]` must have 10 tiles, got 64"):
        agreed.load_state_dict(AgreedBlock(Tiling((64,), 1)).state_dict())
