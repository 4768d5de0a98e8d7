from collections.abc import Hashable, Mapping
from numbers import Integral
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator, as_rule
from holdfast.checks import check_enough_rows, failure, shape_of
from holdfast.exchange._agreed_block import AgreedBlock
from holdfast.exchange._payload import Payload
from holdfast.geometry import Block, DenseRows
from holdfast.seeds import stream

Worker = Hashable
"""The identity of a worker, which persists over rounds: a rank, a client, a peer."""


@final
class Round:
    """One round of the exchange, on a process that computes the direction.

    Simulations, process groups and federations use it in the same way:

        this = Round(agreed, rule)
        this.report(worker, memory.report())                  # of every worker that takes part
        block = this.agree()
        this.receive(worker, memory.payload(block))           # of every worker that takes part
        result = this.aggregate()                             # result.vector [k]: the direction
        this.close()

    A round is all or nothing: nothing changes before :meth:`close`. After an error or a missing
    worker the agreement is unchanged, and a new `Round` begins again. The result depends only on
    the state of `agreed` and on the messages received, in any order, so all processes that receive
    the same messages compute bitwise the same direction. A round does not wait for missing workers:
    the rule decides among the rows that arrived.

    A worker can lie only in its report and in its row; the rule and :class:`AgreedBlock` bound the
    effect of both. Values of a wrong shape raise an error, after which the caller may continue
    without that worker.

    Args:
        agreed: the agreement, which all participants hold with the same state.
        rule: turns the rows [n, k] of the block into a direction [k]. The default decides for each
            tile separately: one rule for the whole block would let an attacker concentrate the
            noise of all tiles in one.
        dtype: the dtype of rows and direction.
    """

    def __init__(
        self,
        agreed: AgreedBlock,
        rule: Aggregator | str = "blockwise(tile=64) | geometric-median",
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.agreed, self.rule, self.dtype = agreed, as_rule(rule), dtype
        self.number = agreed.round
        self.block: Block | None = None
        self._reports: dict[Worker, Tensor] = {}
        self._payloads: dict[Worker, Payload] = {}
        self._rows: DenseRows | None = None
        self._result: Aggregate | None = None

    @property
    def workers(self) -> list[Worker]:
        """Those whose values were received, in the order of the rows: numbers by their value."""
        return sorted(self._payloads, key=_place)

    def report(self, worker: Worker, norms: Tensor, *, number: int | None = None) -> None:
        """Add the report of a worker, made for the round `number` (this one by default)."""
        self._check_open(worker, self._reports, number)
        if self.block is not None:
            raise failure("report", "come before the block is agreed on", f"one of {worker!r}")
        n_tiles = self.agreed.tiling.n_tiles
        if not isinstance(norms, Tensor) or norms.shape != (n_tiles,):
            requirement = f"have shape ({n_tiles},), one norm per tile"
            raise failure("report", requirement, shape_of(norms))
        self._reports[worker] = norms

    def agree(self) -> Block:
        """The block of this round, from the reports that were added."""
        reports = None
        if self.agreed.wants_reports:
            if not self._reports:
                raise failure("reports", "come from at least one worker", "none")
            reports = torch.stack([norms.cpu() for norms in self._reports.values()])
        self.block = self.agreed.choose(reports)
        return self.block

    def receive(self, worker: Worker, payload: Payload, *, number: int | None = None) -> None:
        """Add the values of a worker on the block of the round `number` (this one by default)."""
        self._check_open(worker, self._payloads, number)
        if self.block is None:
            raise failure("payload", "come after the block is agreed on", f"one of {worker!r}")
        k, n_tiles = len(self.block), len(self.block.tiles)
        if payload.values.shape != (k,):
            got = tuple(payload.values.shape)
            raise failure("payload", f"have shape ({k},), one value per column of the block", got)
        if payload.scales is not None and payload.scales.shape != (n_tiles,):
            got = tuple(payload.scales.shape)
            raise failure("payload", f"have one scale for each of the {n_tiles} tiles", got)
        self._payloads[worker] = payload
        self._rows = None

    def rows(self) -> DenseRows:
        """[n, k] the rows of the block, in the order of `workers`, cut by parameter."""
        if self.block is None or not self._payloads:
            raise failure("payloads", "come from at least one worker", "none")
        if self._rows is not None:
            return self._rows
        block, payloads = self.block, [self._payloads[worker] for worker in self.workers]
        matrix = torch.stack([payload.decoded(block, self.dtype) for payload in payloads])
        # A tensor per parameter: the rule finds the tiles again within each.
        sizes = block.tiling.by_section(block.tiles).values()
        self._rows = DenseRows(list(torch.split(matrix, list(sizes), dim=1)))
        return self._rows

    def aggregate(self, row_weights: Mapping[Any, float] | None = None) -> Aggregate:
        """The rule's result for the rows of this round; `row_weights` of those that have sent."""
        rows = self.rows()
        check_enough_rows(rows.n, self.rule.n_needed, self.rule)
        arguments: dict[str, object] = {}
        if row_weights is not None:
            weights = [float(row_weights[worker]) for worker in self.workers]
            arguments["row_weights"] = torch.tensor(weights, dtype=torch.float64)
        if "generator" in self.rule.takes:
            arguments["generator"] = stream(0, "rule of the exchange", self.number)
        self._result = self.rule.aggregate(rows, **arguments)  # type: ignore[arg-type]
        return self._result

    def close(self) -> None:
        """End the round: its block counts as sent. Each worker may then call `memory.sent`."""
        if self.block is None or self._result is None:
            raise failure("round", "have a direction before it is closed", "none")
        if self.agreed.round != self.number:
            raise failure("round", f"be {self.agreed.round}, the one that is open", self.number)
        self.agreed.sent(self.block)

    def _check_open(
        self, worker: Worker, taken: Mapping[Worker, object], number: int | None
    ) -> None:
        """Check for a message for this round, the first of its kind from its worker."""
        if number is not None and number != self.number:
            raise failure("number", f"be {self.number}, the round that is open", number)
        if worker in taken:
            raise failure("worker", "send one message of a kind per round", f"{worker!r} again")


def _place(worker: Worker) -> tuple[bool, int, str]:
    """The key by which workers are sorted: numbers first, others by their `repr`."""
    number: object = worker
    if isinstance(number, Integral):
        return False, int(number), ""
    return True, 0, repr(worker)
