"""The public checks of rules and rows: broken ones fail, with the promise that they break."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import CallContext, GramAggregator, Krum, Mean, RadiusFilter
from holdfast.geometry import DenseRows, Gram, MixedColumnRows, Rows, Solution
from holdfast.testing import check_rows, check_rule
from tests.samples import gaussian

MOVED = {"breakdown": "weighs every row"}


class Broken(GramAggregator):
    """The mean, as rules of a subclass break it."""

    n_needed = 1

    def _n_resisted(self, n: int) -> int:
        return 0

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        return Solution(torch.full((gram.n,), 1.0 / gram.n, dtype=torch.float64))


@dataclass(frozen=True, kw_only=True)
class FirstRow(Broken):
    name = "first-row"

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        return Solution(torch.eye(gram.n, dtype=torch.float64)[0])


@dataclass(frozen=True, kw_only=True)
class Shrinks(Broken):
    name = "shrinks"

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        return Solution(torch.full((gram.n,), 0.5 / gram.n, dtype=torch.float64))


@dataclass(frozen=True, kw_only=True)
class Draws(Broken):
    name = "draws"

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        weights = torch.rand(gram.n, dtype=torch.float64)
        return Solution(weights / weights.sum())


@dataclass(kw_only=True)
class Mutable(Broken):
    size: float = 1.0
    name = "mutable"
    __hash__ = object.__hash__


@dataclass(frozen=True, kw_only=True)
class Boasts(Broken):
    name = "boasts"

    def _n_resisted(self, n: int) -> int:
        return (n - 1) // 2


@pytest.mark.parametrize(
    ("rule", "promise"),
    [
        (FirstRow(), "permutation"),
        (Shrinks(), "translation"),
        (Draws(), "agrees across dtypes"),
        (Mutable(), "is its configuration"),
        (Boasts(), "breakdown"),
    ],
    ids=lambda value: str(value),
)
def test_broken_rules_fail(rule: GramAggregator, promise: str) -> None:
    lacks = {} if promise == "breakdown" else MOVED
    with pytest.raises(AssertionError, match=rf"breaks the promise '{promise}': "):
        check_rule(rule, lacks=lacks)


def test_what_a_rule_lacks_must_be_true_and_known() -> None:
    with pytest.raises(AssertionError, match="keeps the promise 'scale'; it must not lack it"):
        check_rule(Krum(n_bad=6), lacks={"scale": "no"})
    with pytest.raises(ValueError, match=r"`lacks` must be one of .*, got 'speed'"):
        check_rule(Mean(), lacks={"speed": "no"})
    check_rule(RadiusFilter())


class Off(Rows):
    """Rows that answer as the matrix does, except for one operation."""

    def __init__(self, matrix: Tensor, **wrong: Any) -> None:
        self._dense = DenseRows(matrix)
        self._wrong = wrong
        self.n, self.d, self.dtype, self.device = *matrix.shape, matrix.dtype, matrix.device
        self.n = wrong.get("n", self.n)

    def gram(self, references: Sequence[Tensor] = (), row_weights: Tensor | None = None) -> Gram:
        scale = self._wrong.get("gram", 1.0)
        return DenseRows(scale * self._dense.matrix()).gram(references, row_weights)

    def combine(self, weights: Tensor, *, exact: bool = False) -> Tensor:
        scale: float = self._wrong.get("combine", 1.0)
        return scale * self._dense.combine(weights, exact=exact)

    def keep(self, indices: Tensor) -> "Off":
        chosen = indices.flip(0) if "keep" in self._wrong else indices
        return Off(self._dense.keep(chosen).matrix())


@pytest.mark.parametrize(
    ("wrong", "promise"),
    [
        ({"n": 4}, "says what it holds"),
        ({"gram": 1.01}, "has its inner products"),
        ({"combine": 1.01}, "combines"),
        ({"keep": True}, "keeps some"),
    ],
)
def test_broken_rows_fail(wrong: dict[str, Any], promise: str) -> None:
    matrix = gaussian(5, 30)
    check_rows(Off(matrix), matrix)
    with pytest.raises(AssertionError, match=rf"breaks the promise '{promise}': "):
        check_rows(Off(matrix, **wrong), matrix)


def mixed(matrix: Tensor) -> Rows:
    base = DenseRows(matrix)
    return MixedColumnRows(base, torch.eye(len(matrix), dtype=torch.float64), base.lengths())


def storages() -> Iterator[Callable[[Tensor], Rows]]:
    yield DenseRows
    yield lambda matrix: DenseRows([matrix[:, :8].reshape(len(matrix), 2, 4), matrix[:, 8:]])
    yield lambda matrix: DenseRows(matrix.repeat_interleave(2, 0)).keep(torch.arange(0, 10, 2))
    yield mixed


@pytest.mark.parametrize("make", list(storages()))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_all_storages_keep_their_promises(
    make: Callable[[Tensor], Rows], dtype: torch.dtype
) -> None:
    matrix = gaussian(5, 30, dtype=dtype)
    check_rows(make(matrix), matrix)
