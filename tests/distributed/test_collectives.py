"""Sums over the ranks of a group: as one holder would have them, to the bit the same on all."""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.distributed._collectives import GroupHolders, all_gather
from tests.distributed.workers import Workers
from tests.holders import Holder, on_holders

SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e30, -1e300, torch.inf, -torch.inf, torch.nan]


def partials(seed: int, n: int) -> Tensor:
    """[n, 3, 4] tensors of n holders, with many special values."""
    generator = torch.Generator().manual_seed(seed)
    choice = torch.randint(2 * len(SPECIAL), (n, 3, 4), generator=generator)
    usual = torch.randn(n, 3, 4, generator=generator, dtype=torch.float64)
    special = torch.tensor(SPECIAL, dtype=torch.float64)[choice % len(SPECIAL)]
    return usual.where(choice >= len(SPECIAL), special)


def outcomes(rank: int, holder: Holder | GroupHolders, n: int) -> list[Tensor]:
    found = []
    for seed in range(20):
        mine = partials(seed, n)[rank]
        before = mine.clone()
        found += [
            holder.sum(mine),
            holder.max(mine),
            holder.max(mine.float()),
            holder.sum(mine[0, 0]),
        ]
        flag = bool((partials(seed, n)[rank] > -3).all()) or seed % 3 == 0
        found.append(torch.tensor(holder.all(flag)))
        assert torch.equal(mine.nan_to_num(nan=7.0), before.nan_to_num(nan=7.0))
    return found


def in_a_group() -> list[Tensor]:
    group = dist.distributed_c10d._get_default_group()
    return outcomes(group.rank(), GroupHolders(group, torch.device("cpu")), group.size())


def test_holders_are_those_of_threads(workers: Workers) -> None:
    for n in (2, 3, 4):
        wanted = on_holders(n, partial(outcomes, n=n))[0]
        found = workers.run(in_a_group, n=n)
        for one in found:
            torch.testing.assert_close(one, wanted, equal_nan=True, rtol=1e-12, atol=0.0)
            for a, b in zip(one, found[0], strict=True):
                assert torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0))


def gathered() -> list[Tensor]:
    group = dist.distributed_c10d._get_default_group()
    rank = group.rank()
    return [
        all_gather(torch.arange(6).view(2, 3).T + 10 * rank, group),  # not contiguous
        all_gather(torch.tensor(float(rank)), group),
        all_gather(torch.full((2,), rank, dtype=torch.int64), group),
    ]


def test_all_gather(workers: Workers) -> None:
    for matrices, scalars, integers in workers.run(gathered, n=3):
        assert matrices.equal(
            torch.stack([torch.arange(6).view(2, 3).T + 10 * i for i in range(3)])
        )
        assert scalars.tolist() == [0.0, 1.0, 2.0]
        assert integers.tolist() == [[0, 0], [1, 1], [2, 2]]
