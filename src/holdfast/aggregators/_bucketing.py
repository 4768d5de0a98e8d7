from dataclasses import dataclass
from math import ceil
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregator, rules
from holdfast.aggregators._call import GENERATOR, CallContext
from holdfast.aggregators._wrapper import MixingWrapper
from holdfast.checks import check_count
from holdfast.geometry import Lengths


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Bucketing(MixingWrapper):
    r"""Shuffles the rows, averages buckets of `bucket_size` rows, and passes the means to `rule`.

    The call's `generator` draws the permutation; the bucket means go to `rule`. `row_weights`
    weight the rows within a bucket, and a bucket by their sum. One bad row makes its whole bucket
    bad, so with bucket size s it resists as many rows as `rule` resists among
    :math:`\lceil n / s \rceil`. The order of rows matters only through the permutation. In Gram
    space it costs one n x n product.

    Reference: Karimireddy, He and Jaggi, *Byzantine-Robust Learning on Heterogeneous Datasets via
    Bucketing* (ICLR 2022), Algorithm 1.

    Example:
        >>> from holdfast.aggregators import Mean
        >>> rule, generator = Bucketing(bucket_size=2, rule=Mean()), torch.Generator()
        >>> rule(torch.tensor([[1.0], [2.0], [3.0], [6.0]]), generator=generator.manual_seed(0))
        tensor([3.])
    """

    bucket_size: int
    rule: Aggregator | str

    name = "bucketing"
    _own_needs = GENERATOR
    _mixes_by_products = False

    def __post_init__(self) -> None:
        self._set_rule()
        check_count("bucket_size", self.bucket_size, at_least=1)

    @property
    def n_needed(self) -> int:
        return (self.inner.n_needed - 1) * self.bucket_size + 1

    def _n_resisted(self, n: int) -> int:
        return self.inner.n_resisted(ceil(n / self.bucket_size))

    def _mix(self, measured: Lengths, context: CallContext) -> tuple[Tensor, Tensor | None]:
        n, generator = measured.n, context.generator
        assert generator is not None
        order = torch.randperm(n, generator=generator, device=generator.device).cpu()
        shares = context.weights_of(n)
        matrix = torch.zeros(ceil(n / self.bucket_size), n, dtype=torch.float64)
        for bucket, members in enumerate(torch.split(order, self.bucket_size)):
            matrix[bucket, members] = shares[members]
        totals = matrix.sum(1)
        return matrix / totals[:, None], None if context.row_weights is None else totals
