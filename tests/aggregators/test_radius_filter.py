"""The radius filter of many rows: a sketched vector median, exact rejections, any minority."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import Mean, RadiusFilter
from holdfast.geometry import DenseRows, _kernels, _sketch, pays_to_stream
from tests.samples import gaussian

N, D = 50, 40_000
N_BAD = 24


def dark_columns() -> Tensor:
    """The columns that the sample of [N, D] rows leaves out: the attacker knows the code."""
    every = 2 * _sketch.columns_per_sampled(N, D)
    sample, _ = _kernels.sampled_columns(torch.arange(D, dtype=torch.float64)[None], every)
    assert 3 * sample.shape[1] < D
    seen = torch.zeros(D, dtype=torch.bool).index_fill_(0, sample[0].long(), True)
    return torch.nonzero(~seen)[:, 0]


def by_gram(rule: RadiusFilter, rows: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The weights of the exact rule."""
    with monkeypatch.context() as patch:
        patch.setattr(_sketch, "FEW_ROWS", 10**9)
        weights = rule.aggregate(rows).weights
    assert weights is not None
    return weights


def count_grams(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    gram = DenseRows.gram

    def counted(self: DenseRows, *arguments: object) -> object:
        calls.append(self.n)
        return gram(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DenseRows, "gram", counted)
    return calls


@pytest.mark.parametrize(
    "bad", [lambda rows: rows, lambda rows: -100 * rows, lambda rows: 9 * rows]
)
@pytest.mark.parametrize("rule", [RadiusFilter(), RadiusFilter(radius=200.0)])
def test_the_sketch_rejects_as_the_gram_matrix_does(
    rule: RadiusFilter, bad: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = gaussian(N, D) + 0.5
    rows[:N_BAD] = bad(rows[:N_BAD])
    eta = torch.linspace(1.0, 1.2, N, dtype=torch.float64).flip(0)
    assert pays_to_stream(DenseRows(rows))
    expected = by_gram(rule, rows, monkeypatch)
    calls = count_grams(monkeypatch)
    torch.testing.assert_close(rule.aggregate(rows).weights, expected)
    rejected = rule.aggregate(rows, row_weights=eta.flip(0)).rejected
    assert torch.equal(rejected, expected == 0)
    assert calls == []


@pytest.mark.parametrize(("n", "d"), [(N, D), (300, 4096 * 5), (300, 4096 * 4 + 9)])
def test_without_a_rejection_it_has_the_bits_of_the_mean(n: int, d: int) -> None:
    rows = gaussian(n, d) + 0.5
    eta = torch.linspace(1.0, 2.0, n, dtype=torch.float64)
    assert torch.equal(RadiusFilter()(rows), Mean()(rows))
    assert torch.equal(RadiusFilter()(rows, row_weights=eta), Mean()(rows, row_weights=eta))


def one_huge_entry(rows: Tensor, dark: Tensor) -> Tensor:
    rows[:N_BAD, dark[7]] = 3e5
    return rows


def many_moderate_entries(rows: Tensor, dark: Tensor) -> Tensor:
    rows[:N_BAD, dark] = -20.0
    return rows


def equal_lengths(rows: Tensor, dark: Tensor) -> Tensor:
    """Central where the sample looks, the opposite elsewhere, and as long as honest rows."""
    length = float(rows[N_BAD:].norm(dim=1).mean())
    lie = rows[N_BAD:].mean(0) + 0.01 * rows[:N_BAD]
    lie[:, dark] *= -1
    rows[:N_BAD] = lie * (length / lie.norm(dim=1, keepdim=True))
    return rows


@pytest.mark.parametrize("attack", [one_huge_entry, many_moderate_entries, equal_lengths])
@pytest.mark.parametrize("common", [0.0, 0.5, 4.0])
def test_what_hides_from_the_sample_is_found(
    attack: Callable[[Tensor, Tensor], Tensor], common: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = gaussian(N, D) + common
    rows = attack(honest.clone(), dark_columns())
    longest = float(honest[N_BAD:].norm(dim=1).max())
    result = RadiusFilter().aggregate(rows)
    assert float(result.vector.norm()) <= 13 * longest
    assert result.weights is not None
    mean = (result.weights @ rows.double()).float()  # also where the sketch expected another one
    torch.testing.assert_close(result.vector, mean, rtol=1e-4, atol=1e-4)
    assert torch.equal(result.rejected, by_gram(RadiusFilter(), rows, monkeypatch) == 0)
    if attack is not equal_lengths or common == 4.0:
        assert result.rejected.nonzero()[:, 0].tolist() == list(range(N_BAD))


def test_a_deceived_sketch_leaves_the_choice_to_the_gram_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = equal_lengths(gaussian(N, D) + 4.0, dark_columns())
    calls = count_grams(monkeypatch)
    assert RadiusFilter().aggregate(rows).rejected[:N_BAD].all()
    assert calls == [N]
