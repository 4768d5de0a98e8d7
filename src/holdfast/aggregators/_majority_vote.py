from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast._compile import WIDTH
from holdfast.aggregators._aggregator import Aggregate, Aggregator, equal_weights, rules
from holdfast.aggregators._call import CallContext
from holdfast.checks import check_count, check_finite_majority, failure
from holdfast.errors import NoMajorityError
from holdfast.geometry import ColumnRows, Rows, by_column

_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Integers by the bytes of an entry, to compare bit patterns."""


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class MajorityVote(Aggregator):
    r"""The mean over groups of the row that most members of a group sent, compared bitwise.

    Rows :math:`1 \dots r`, :math:`r + 1 \dots 2r` and so on, with r the `group_size`, are the same
    gradient computed r times. From each group the rule takes the row to which more than half of its
    members are equal; the result is the mean of these rows. It recovers the mean of the true
    gradients exactly while at most :math:`s = (r - 1) / 2` rows of each group are bad, so
    `n_resisted` is s (all bad rows may be in one group). Groups that agree on a row that is not
    finite are left out. A group without a majority raises
    :class:`~holdfast.errors.NoMajorityError`. The order of rows matters, because it defines the
    groups. It belongs to neither family: it compares bits.

    Reference: Chen et al., *DRACO: Byzantine-resilient Distributed Training via Redundant
    Gradients* (ICML 2018), Section 4.1 (the repetition code).

    Example:
        >>> rows = torch.tensor([[1.0], [1.0], [7.0], [-9.0], [3.0], [3.0]])
        >>> MajorityVote(group_size=3)(rows)
        tensor([2.])
    """

    group_size: int

    name = "majority-vote"
    reads_products = False
    reads_columns = True
    reads_order = True

    def __post_init__(self) -> None:
        check_count("group_size", self.group_size, at_least=1)
        if self.group_size % 2 == 0:
            raise failure("group_size", "be odd (2s + 1 members outvote s)", self.group_size)

    @property
    def n_needed(self) -> int:
        return self.group_size

    def _n_resisted(self, n: int) -> int:
        return (self.group_size - 1) // 2

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        if rows.n % self.group_size:
            raise failure("rows", f"come in whole groups of {self.group_size}", f"{rows.n} rows")
        equal = self._equal(by_column(rows))
        votes = equal.sum(2).max(1)  # in each group, the most members that hold one row
        undecided = torch.nonzero(2 * votes.values <= self.group_size)[:, 0]
        if len(undecided):
            raise NoMajorityError(
                f"`rows` must hold a majority of bit-equal rows in every group of "
                f"{self.group_size}, got none in group {int(undecided[0])} (counting from 0)."
            )
        groups = torch.arange(len(equal))
        winners = groups * self.group_size + votes.indices
        finite = rows.keep(winners).finite()
        check_finite_majority(finite)
        agreeing = equal[groups, votes.indices] & finite[:, None]
        weights = agreeing.double() / agreeing.sum(1, keepdim=True).clamp(min=1) / finite.sum()
        # The sum is over one row per group, which is exact; the weights name all that agree.
        vector = rows.combine(equal_weights(winners[finite], rows.n))
        return Aggregate(vector, weights.flatten(), ~agreeing.flatten())

    def _equal(self, rows: ColumnRows) -> Tensor:
        """[groups, size, size] which members of a group are equal in every bit."""
        size = self.group_size
        equal = torch.ones(rows.n // size, size, size, dtype=torch.bool, device=rows.device)
        for _, chunk in rows.chunks(WIDTH):
            bits = (
                chunk.contiguous().view(_BITS[chunk.element_size()]).view(-1, size, chunk.shape[1])
            )
            for i in range(size):
                equal[:, i] &= (bits[:, i : i + 1] == bits).all(2)
        # Rows are equal if no holder of columns sees a difference.
        return rows.holders.max((~equal).to(torch.uint8)).cpu() == 0
