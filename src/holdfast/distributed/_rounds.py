"""Rounds of the exchange in which every rank computes the same."""

from collections.abc import Callable, Iterable, Sequence
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator
from holdfast.distributed._messages import RoundMessages
from holdfast.distributed._replicas import SharedBuffers
from holdfast.distributed._roll_call import Member
from holdfast.distributed._testimony import Digest, Testimony, check_testimonies
from holdfast.exchange import AgreedBlock, OuterStep, Round, WorkerMemory


@final
class RankRounds:
    """The rounds of one rank.

    Args:
        agreed: the agreement on blocks, the same on every rank.
        memory: that of this rank.
        rule: turns the rows of a block into a direction.
        outer: moves the parameters.
        buffers: those of the model.
        group: the ranks.
        members: their names.

    Attributes:
        n_left_out: for each rank, the number of updates that it reports to have dropped.
        tile_weights: [t, n] weights of the ranks in each tile of the last block; None before.
    """

    def __init__(
        self,
        agreed: AgreedBlock,
        memory: WorkerMemory,
        rule: Aggregator,
        outer: OuterStep,
        buffers: Callable[[], Iterable[Tensor]],
        group: dist.ProcessGroup,
        members: Sequence[Member],
    ) -> None:
        self._agreed, self._rule, self._outer = agreed, rule, outer
        self.memory = memory
        self._buffers, self._members = SharedBuffers(buffers, group), members
        is_on_one_host = len({member.host for member in members}) == 1
        self.messages = RoundMessages(agreed, memory, group, is_on_one_host=is_on_one_host)
        self.n_left_out = [0] * len(members)
        self.tile_weights: Tensor | None = None

    @torch.no_grad()
    def make(self) -> None:
        """Make one round; nothing but the memory changes until all ranks agree on the round."""
        agreed, memory, messages = self._agreed, self.memory, self.messages
        this = Round(agreed, self._rule, dtype=memory.vector.dtype)
        messages.begin()
        # The order of messages is the protocol: reports, then values on the block that follows from
        # them, then buffers, then testimonies about all of it.
        if agreed.wants_reports:
            for rank, report in enumerate(messages.reports(memory.report())):
                this.report(rank, report)
        block = this.agree()
        payload = memory.payload(block)
        for rank, values in enumerate(messages.payloads(payload, block)):
            this.receive(rank, values)
        medians = self._buffers.medians()
        result, error = None, None
        try:
            result = this.aggregate()
        except Exception as raised:  # the others learn of it before this rank raises it
            error = raised
        # No rank acts on the round before it has the testimonies of all others: a liar may have
        # sent different values to different ranks, which then differ in these digests.
        own = Testimony(
            round=this.number,
            received=messages.received(),
            block=Digest(block.tiles).value(),
            direction=Digest(*([] if result is None else [result.vector])).value(),
            buffers=Digest(*(median for _, median in medians)).value(),
            has_failed=result is None,
            n_left_out=memory.n_left_out,
        )
        said = messages.testimonies(own)
        check_testimonies(self._members, said)
        # All ranks have failed: had only some of them, the testimonies would differ.
        if error is not None:
            raise error
        assert result is not None
        # All ranks agree on the round, so its effects begin here and on all of them.
        this.close()
        self._outer(block, result.vector)
        memory.sent(block, payload)
        SharedBuffers.write(medians)
        self.n_left_out = [one.n_left_out for one in said]
        self.tile_weights = self._weights(result)

    @staticmethod
    def _weights(result: Aggregate) -> Tensor:
        """[t, n] the weights of the ranks."""
        weights = result.tile_weights if result.weights is None else result.weights[None]
        if weights is None:  # a rule by columns, such as the coordinate median
            weights = (~result.rejected).double()[None] / (~result.rejected).sum()
        return weights
