"""Order statistics by sorting network against sorting."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.geometry import median, order_statistics
from holdfast.geometry._order_statistics import comparators
from tests.samples import gaussian


@given(n=st.integers(1, 40), seed=st.integers(0, 999), data=st.data())
def test_every_rank(n: int, seed: int, data: st.DataObject) -> None:
    values = gaussian(n, 50, seed).round(decimals=1)  # rounded, so that there are ties
    ranks = tuple(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    found = torch.stack(order_statistics(n, ranks)(values.unbind(0)))
    assert torch.equal(found, values.sort(dim=0).values[list(ranks)])


@given(n=st.integers(1, 33), seed=st.integers(0, 99))
def test_median(n: int, seed: int) -> None:
    values = gaussian(n, 20, seed, torch.float64)
    torch.testing.assert_close(
        median(len(values))(values.unbind(0)), torch.quantile(values, 0.5, dim=0)
    )


def test_zero_one_principle_for_full_networks() -> None:
    """A network that sorts all sequences of zeros and ones sorts everything."""
    for n in range(1, 11):
        codes = torch.arange(2**n)
        bits = torch.stack([(codes >> i) & 1 for i in range(n)]).float()
        found = torch.stack(order_statistics(n, tuple(range(n)))(bits.unbind(0)))
        assert torch.equal(found, bits.sort(dim=0).values)


def test_pruning_saves_work() -> None:
    assert len(comparators(32, (15, 16))) < len(comparators(32, tuple(range(32)))) == 191


def test_nan_reaches_the_median() -> None:
    values = gaussian(9, 4)
    values[3, 2] = float("nan")
    assert median(len(values))(values.unbind(0)).isnan().tolist() == [False, False, True, False]


def test_large_values_do_not_overflow_between_the_two_middle_ones() -> None:
    values = torch.full((4, 1), 3e38)
    assert median(len(values))(values.unbind(0)).tolist() == [values[0, 0].item()]
