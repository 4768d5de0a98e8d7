"""Layouts, workers and a driver for tests of the exchange."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast import Layout
from holdfast.aggregators import Aggregator
from holdfast.exchange import AgreedBlock, OuterStep, Payload, Round, WorkerMemory
from holdfast.geometry import Block

SHAPES = ((5, 7), (5,), (3, 5), (3,))
"""Parameters whose sizes are no multiples of a tile."""


def layout_of(
    shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32
) -> Layout:
    return Layout([torch.zeros(shape, requires_grad=True, dtype=dtype) for shape in shapes])


class Simulation:
    """n workers in one process with a shared vector of parameters."""

    def __init__(
        self, layout: Layout, n: int, agreed: AgreedBlock, rule: Aggregator | str, **options: Any
    ) -> None:
        self.layout, self.agreed, self.rule = layout, agreed, rule
        width = agreed.tiling.width
        assert width is not None
        self.memories = [WorkerMemory(layout, tile=width, **options) for _ in range(n)]
        self.outer = OuterStep(layout)

    def round(
        self,
        updates: Tensor,
        *,
        reports: dict[int, Tensor] | None = None,
        values: dict[int, Tensor] | None = None,
        present: Sequence[int] | None = None,
    ) -> tuple[Block, Tensor]:
        """One round in which some workers lie in their `reports` or `values`, or are missing.

        Returns the block and the direction on it.
        """
        present = range(len(self.memories)) if present is None else present
        this = Round(self.agreed, self.rule, dtype=self.layout.parameters[0].dtype)
        for memory, update in zip(self.memories, updates, strict=True):
            memory.add(update)
        for i in present:
            if self.agreed.wants_reports:
                this.report(i, (reports or {}).get(i, self.memories[i].report()))
        block = this.agree()
        payloads = {i: self.memories[i].payload(block) for i in present}
        for i, payload in payloads.items():
            lie = (values or {}).get(i)
            sent = payload if lie is None else Payload(lie[block.columns])
            this.receive(i, sent)
        direction = this.aggregate().vector
        this.close()
        self.outer(block, direction)
        for i, payload in payloads.items():
            self.memories[i].sent(block, payload)
        return block, direction
