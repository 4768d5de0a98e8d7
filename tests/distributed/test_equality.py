"""Every way to reduce gives what one process gives that holds all rows, on every rank alike."""

from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import Aggregate, as_rule
from holdfast.seeds import stream
from tests.distributed.cases import SHAPES, SIZES, Seen, steps, two_nodes
from tests.distributed.workers import Workers

D = sum(SIZES)
CUTS = [0, *accumulate(SIZES)]
UNITS = [list(range(start, stop)) for start, stop in pairwise(CUTS)]

RULES = [
    "mean",
    "radius-filter",
    "geometric-median",
    "coordinate-median",
    "trimmed-mean(n_bad=1)",
    "covariance-filter",
    "norm-filter(n_bad=1)",
    "mixing(n_bad=1) | geometric-median",
    "bucketing(bucket_size=1) | geometric-median",
]


FEW_RULES = ["radius-filter", "geometric-median", "trimmed-mean(n_bad=1)"]


def batches(n: int) -> dict[str, Tensor]:
    """Rows with nothing wrong, and with one wrong row each.

    Row 1 is somewhat farther out than the others, so that mixing leaves it out of them: if two rows
    had one mixture and two had another, every point between both would be a geometric median.
    """
    generator = stream(0, "rows")
    usual = torch.randn(D, generator=generator)
    noise = torch.full((n, 1), 0.5).index_fill(0, torch.tensor([1]), 0.8)
    found = {
        name: usual + noise * torch.randn(n, D, generator=generator)
        for name in ("clean", "NaN", "huge", "zeros")
    }
    found["NaN"][n - 2, 50] = torch.nan  # in one column of one unit
    found["huge"][1] *= 1e30
    found["zeros"][n - 1] = 0.0
    return found


def expected(
    rule: str, rows: Tensor, blocks: list[list[int]], sizes: list[int], zero_is_absent: bool
) -> Aggregate:
    """The rule on each block of columns; `sizes` weight the blocks in the average of weights."""
    aggregates = []
    used = torch.arange(len(rows))
    if zero_is_absent:
        used = used[(rows != 0).any(1)]
    parsed = as_rule(rule)
    extras = {"generator": stream(0, "guard")} if parsed.needs else {}
    vector = torch.zeros(D)
    for block in blocks:
        one = parsed.aggregate(rows[used][:, block], **extras)  # type: ignore[arg-type]
        vector[block] = one.vector
        aggregates.append(one.for_all(used, len(rows)))
    rejected = torch.stack([one.rejected for one in aggregates]).any(0)
    weights = None
    if aggregates[0].weights is not None:
        shares = torch.tensor(sizes).double() / sum(sizes)
        weights = torch.stack([w for one in aggregates if (w := one.weights) is not None])
        weights = weights.T @ shares
    return Aggregate(vector, weights, rejected)


def padded(size: int, n: int) -> int:
    """The least multiple of n that is not below `size`."""
    return -(-size // n) * n


def padded_units(n: int) -> list[int]:
    """The columns of the units of `fully_shard`, which pads the first dimension."""
    return [
        sum(padded((shape or (1,))[0], n) * torch.Size(shape[1:]).numel() for shape in unit)
        for unit in SHAPES
    ]


def assert_equal_bits(seen: list[list[Seen]]) -> None:
    for other in seen[1:]:
        for one, first in zip(other, seen[0], strict=True):
            assert one.gradient.equal(first.gradient)
            assert one.rejected == first.rejected
            assert (one.weights is None) == (first.weights is None)
            assert one.weights is None or first.weights is None or one.weights.equal(first.weights)


def assert_close(one: Seen, wanted: Aggregate, name: str) -> None:
    scale = float(wanted.vector.abs().max())
    torch.testing.assert_close(one.gradient, wanted.vector, rtol=1e-5, atol=1e-6 * scale)
    assert one.rejected == torch.nonzero(wanted.rejected)[:, 0].tolist(), name
    assert (one.weights is None) == (wanted.weights is None)
    if one.weights is not None:
        torch.testing.assert_close(one.weights, wanted.weights, rtol=1e-4, atol=1e-4)


CASES = [
    *[(kind, rule, "sharded") for kind in ("ddp", "fsdp") for rule in RULES],
    *[(kind, rule, "sharded") for kind in ("bucket", "plain") for rule in FEW_RULES],
    *[(kind, rule, "gathered") for kind in ("ddp", "fsdp") for rule in FEW_RULES],
    *[(kind, "radius-filter", "gathered") for kind in ("bucket", "plain")],
]


@pytest.mark.parametrize(("kind", "rule", "mode"), CASES)
def test_equal_to_one_process(workers: Workers, kind: str, rule: str, mode: str) -> None:
    rows_by_name = batches(4)
    seen = workers.run(steps, kind, rule, list(rows_by_name.values()), {"mode": mode})
    assert_equal_bits(seen)
    for step, (name, rows) in enumerate(rows_by_name.items()):
        one = seen[0][step]
        blocks = {"fsdp": UNITS, "bucket": one.blocks}.get(kind, [list(range(D))])
        sizes = [len(block) for block in blocks]
        if kind == "fsdp":
            sizes = padded_units(4)
        wanted = expected(rule, rows, blocks, sizes, kind in ("ddp", "plain"))
        assert_close(one, wanted, name)
        if name == "clean" and rule in ("mean", "radius-filter"):
            assert not one.rejected


@pytest.mark.parametrize("mode", ["sharded", "gathered"])
@pytest.mark.parametrize("rule", ["mean", "radius-filter", "geometric-median"])
def test_nodes_are_rows(workers: Workers, rule: str, mode: str) -> None:
    rows_by_name = batches(4)
    seen = workers.run(two_nodes, rule, list(rows_by_name.values()), {"mode": mode})
    assert_equal_bits(seen)
    for step, (name, rows) in enumerate(rows_by_name.items()):
        nodes = rows.view(2, 2, D).mean(1)
        sizes = padded_units(2)
        wanted = expected(rule, nodes, UNITS, sizes, False)
        assert_close(seen[0][step], wanted, name)
