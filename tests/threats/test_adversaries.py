"""Adversaries: exact counts, uniform draws, explicit identities."""

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.seeds import stream
from holdfast.threats import Adversaries, rows_to_samples


@pytest.mark.parametrize(("fraction", "n", "n_bad"), [
    (0.4, 32, 13), (0.29, 50, 15), (0.2, 32, 6), (0.4, 20, 8), (0.5, 1, 1), (0.5, 3, 2),
    (0.49, 1, 0), (0.1, 5, 1), (0.145, 100, 15), (0.7 - 0.4, 5, 2), (0.0, 10, 0), (0, 10, 0),
    (1.0, 10, 10), (1, 7, 7), (1e-300, 10, 0), (0.35, 10, 4), (0.57, 50, 29),
])  # fmt: skip
def test_shares_are_rounded_to_the_nearest_and_halves_up(
    fraction: float, n: int, n_bad: int
) -> None:
    assert Adversaries(bad_fraction=fraction).count(n) == n_bad


@given(st.integers(0, 1000), st.integers(1, 3000))
def test_counts_are_those_of_exact_arithmetic(thousandths: int, n: int) -> None:
    exact = Fraction(thousandths, 1000) * n
    n_bad = Adversaries(bad_fraction=thousandths / 1000).count(n)
    assert n_bad == (2 * exact + 1) // 2
    assert 0 <= n_bad <= n


@pytest.mark.parametrize("redrawn", [True, False])
def test_so_many_are_drawn(redrawn: bool) -> None:
    for adversaries, n_bad in (
        (Adversaries(bad_fraction=0.4, redrawn=redrawn), 13),
        (Adversaries(n_bad=5, redrawn=redrawn), 5),
    ):
        mask = adversaries.draw(32, generator=stream(0, "adversaries"))
        assert mask.dtype == torch.bool
        assert mask.shape == (32,)
        assert mask.device.type == "cpu"
        assert int(mask.sum()) == n_bad
        assert torch.equal(mask, adversaries.draw(32, generator=stream(0, "adversaries")))


def draws(adversaries: Adversaries, n: int, n_steps: int) -> list[Tensor]:
    generator, mask, drawn = stream(0, "adversaries"), None, []
    for _ in range(n_steps):
        mask = adversaries.draw(n, generator=generator, previous=mask)
        drawn.append(mask)
    return drawn


def test_identities_are_redrawn_or_stay() -> None:
    moving = draws(Adversaries(bad_fraction=0.4), 20, 30)
    assert len({tuple(mask.tolist()) for mask in moving}) > 25
    fixed = draws(Adversaries(bad_fraction=0.4, redrawn=False), 20, 30)
    assert len({tuple(mask.tolist()) for mask in fixed}) == 1


def test_every_row_is_as_likely_as_any_other() -> None:
    """Each, and each pair, within four and a half standard deviations over 5,000 draws."""
    n_steps, n, n_bad = 5000, 10, 4
    masks = torch.stack(draws(Adversaries(n_bad=n_bad), n, n_steps)).double()
    together = masks.T @ masks / n_steps
    single, pair = n_bad / n, n_bad * (n_bad - 1) / (n * (n - 1))
    assert bool(
        (
            (together.diagonal() - single).abs() < 4.5 * (single * (1 - single) / n_steps) ** 0.5
        ).all()
    )
    off = together[~torch.eye(n, dtype=torch.bool)]
    assert bool(((off - pair).abs() < 4.5 * (pair * (1 - pair) / n_steps) ** 0.5).all())


@given(st.integers(1, 12), st.integers(1, 7), st.integers(0, 50))
def test_samples_of_bad_rows(n: int, per_row: int, seed: int) -> None:
    mask = Adversaries(bad_fraction=0.4).draw(n, generator=stream(seed, "rows"))
    samples = rows_to_samples(mask, n * per_row)
    assert samples.view(n, per_row).tolist() == [[bad] * per_row for bad in mask.tolist()]


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, r"Exactly one of `bad_fraction` and `n_bad` must be given, got neither\."),
    (
        {"bad_fraction": 0.1, "n_bad": 1},
        r"Exactly one of `bad_fraction` and `n_bad` must be given, got both\.",
    ),
    ({"bad_fraction": 1.01}, r"`bad_fraction` must be in \[0, 1\], got 1\.01\."),
    ({"bad_fraction": -0.1}, r"`bad_fraction` must be in \[0, 1\], got -0\.1\."),
    ({"bad_fraction": float("nan")}, r"`bad_fraction` must be in \[0, 1\], got nan\."),
    ({"bad_fraction": True}, r"`bad_fraction` must be in \[0, 1\], got True\."),
    ({"bad_fraction": "half"}, r"`bad_fraction` must be in \[0, 1\], got half\."),
    ({"n_bad": -1}, r"`n_bad` must be a whole number of at least 0, got -1\."),
    ({"n_bad": 2.0}, r"`n_bad` must be a whole number of at least 0, got 2\.0\."),
    ({"n_bad": 1, "redrawn": 1}, r"`redrawn` must be True or False, got 1\."),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=str)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Adversaries(**arguments)


def test_bad_calls_are_named() -> None:
    generator: Any = stream(0, "adversaries")
    with pytest.raises(
        ValueError, match=r"^`n_bad` must be at most 10, the number there is, got 13\.$"
    ):
        Adversaries(n_bad=13).draw(10, generator=generator)
    with pytest.raises(ValueError, match=r"^`n` must be a whole number of at least 1, got 0\.$"):
        Adversaries(n_bad=0).count(0)
    with pytest.raises(
        ValueError,
        match=r"^`mask` must be a bool tensor \[10\], one entry per row, got torch\.bool \[9\]\.$",
    ):
        Adversaries(n_bad=3, redrawn=False).draw(
            10, generator=generator, previous=torch.zeros(9, dtype=torch.bool)
        )
    generator = None
    with pytest.raises(
        ValueError, match=r"^`generator` must be a torch\.Generator, got NoneType\.$"
    ):
        Adversaries(n_bad=3).draw(10, generator=generator)
    with pytest.raises(
        ValueError, match=r"^`n_samples` must be a multiple of 3, the number of rows, got 10\.$"
    ):
        rows_to_samples(torch.ones(3, dtype=torch.bool), 10)
    with pytest.raises(
        ValueError,
        match=r"^`mask` must be a bool tensor \[n\], one entry per row, got \S+32 \[3\]\.$",
    ):
        rows_to_samples(torch.ones(3), 9)
