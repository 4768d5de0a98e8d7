"""The number of bad rows that a rule must resist, as a number or as a fraction."""

from dataclasses import dataclass
from math import floor
from typing import ClassVar

from holdfast.checks import check_count, check_one_of, check_share

ROUNDING = 1e-12
"""Tolerance for sums of weights and counts: in floating point 0.29 * 100 is 28.999999999999996."""


def whole_count(fraction: float, n: int) -> int:
    """The largest whole number that is at most `fraction * n`, up to rounding."""
    return floor(fraction * n + ROUNDING)


@dataclass(frozen=True, kw_only=True)
class BadRowLimit:
    r"""Base of rules that are configured with f, the number of bad rows to resist.

    f is `n_bad`, or :math:`\lfloor \beta n \rfloor` with :math:`\beta` the `bad_fraction` and n the
    number of rows in the call, non-finite ones included. Exactly one of the two must be given.

    A rule that needs :math:`n \ge a f + b` rows sets `rows_per_bad` to a and `rows_besides` to b. A
    fraction must then be below 1 / a. Its `n_needed` is the least number such that it and every
    larger n satisfy the inequality.
    """

    n_bad: int | None = None
    bad_fraction: float | None = None

    one_of: ClassVar[tuple[str, ...]] = ("n_bad", "bad_fraction")
    rows_per_bad: ClassVar[int] = 2
    rows_besides: ClassVar[int] = 1

    def __post_init__(self) -> None:
        names = self.one_of or ("n_bad", "bad_fraction")
        check_one_of({name: getattr(self, name) for name in names}, may_omit=not self.one_of)
        if self.n_bad is not None:
            check_count("n_bad", self.n_bad)
        if self.bad_fraction is not None:
            check_share("bad_fraction", self.bad_fraction, below=1 / self.rows_per_bad)

    @property
    def n_needed(self) -> int:
        """The least number of rows for which the rule is defined."""
        return self._smallest_n(self.rows_per_bad, self.rows_besides)

    def _smallest_n(self, per_bad: int, besides: int) -> int:
        """The least number such that it and every larger n are at least `per_bad * f + besides`."""
        n_bad = self.n_bad or 0
        if self.bad_fraction is not None:
            # floor(beta * n) reaches f at n = ceil(f / beta). That n is too small if
            # f / beta <= per_bad * f + besides - 1; the largest such f decides.
            slack = 1 - per_bad * self.bad_fraction
            n_bad = floor((besides - 1) * self.bad_fraction / slack + 1e-9)
        return per_bad * n_bad + besides

    def count_bad(self, n: int) -> int:
        """The limit f for n rows; the largest minority if neither number nor fraction is given."""
        if self.n_bad is not None:
            return self.n_bad
        # The tolerance for rounding must not lift f above what n rows allow.
        most = (n - self.rows_besides) // self.rows_per_bad
        return most if self.bad_fraction is None else min(whole_count(self.bad_fraction, n), most)

    def n_bad_left(self, n: int, n_lost: int) -> int:
        """The limit for n finite rows if `n_lost` other rows were not finite."""
        return max(0, self.count_bad(n + n_lost) - n_lost)

    def _n_resisted(self, n: int) -> int:
        """The number of bad rows among n that the rule resists."""
        return self.count_bad(n)
