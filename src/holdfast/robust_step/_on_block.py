"""Between a block and the whole: what a rule sees of a call, and what becomes of its answer."""

from typing import Any

import torch
from torch import Tensor

from holdfast.checks import check_vector
from holdfast.geometry import Block, Rows


def share_off(scores: Tensor, block: Block) -> float:
    """The share of all scores that lies off the block."""
    total = float(scores.sum())
    return (
        1.0 - float(scores[block.tiles].sum()) / total if total > 0 and not block.is_whole else 0.0
    )


def on_block(given: dict[str, Any], block: Block, rows: Rows) -> dict[str, Any]:
    """What came with the call, for a rule that sees the block alone."""
    tiles = block.tiles.to(rows.device)
    local = dict(given)
    if "reference" in given:
        check_vector("reference", given["reference"], rows.d)
        local["reference"] = block.tiling.take(given["reference"], tiles)
    if "score" in given:

        def score(part: Tensor) -> float:
            direction = torch.zeros(rows.d, dtype=part.dtype, device=part.device)
            block.tiling.put(direction, tiles, part)
            return float(given["score"](direction))

        local["score"] = score
    return local


def spread(sent: Tensor, block: Block, rows: Rows, spent: Tensor | None) -> Tensor:
    """[d] what is sent, zero off the block; in the storage of the `spent` state if that fits, because fresh memory is slow."""
    if spent is not None and spent.shape == (rows.d,) and spent.dtype == rows.dtype:
        direction = spent.zero_()
    else:
        direction = torch.zeros(rows.d, dtype=rows.dtype, device=rows.device)
    block.tiling.put(direction, block.tiles.to(rows.device), sent.to(direction.dtype))
    return direction
