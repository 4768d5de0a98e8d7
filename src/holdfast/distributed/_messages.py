"""The messages between ranks in one round of the exchange."""

from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.distributed._collectives import Channel
from holdfast.distributed._testimony import Digest, Testimony
from holdfast.exchange import AgreedBlock, Payload, WorkerMemory, message_size
from holdfast.geometry import Block

WIRES = {"bfloat16": torch.bfloat16, "int8": torch.int8}
"""The dtypes of values that are rounded."""


@final
class RoundMessages:
    """Reports, values and testimonies of all ranks; digests of the former go into the latter.

    The sizes of messages are the same in every round. So ranks that disagree about the block, or
    about the number of the round, find out by their testimonies instead of in a broken collective.

    Args:
        agreed: the agreement on blocks.
        memory: that of this rank, for the dtype and the device of the values.
        group: the ranks.
        is_on_one_host: whether all ranks are on one machine.
    """

    def __init__(
        self,
        agreed: AgreedBlock,
        memory: WorkerMemory,
        group: dist.ProcessGroup,
        *,
        is_on_one_host: bool,
    ) -> None:
        self._n_tiles = agreed.tiling.n_tiles
        self._dtype = WIRES.get(memory.wire, memory.vector.dtype)
        # A report has 2 bytes per tile. No size depends on the block, on which ranks may disagree.
        sizes = (
            -(-2 * self._n_tiles // 8) * 8,
            message_size(agreed.tiling, agreed.n_sent, self._dtype),
            Testimony.size(group.size()),
        )
        self._device = memory.vector.device
        self._reports, self._values, self._testimonies = (
            Channel(size, group, self._device, is_on_one_host=is_on_one_host) for size in sizes
        )
        self._received = [Digest() for _ in range(group.size())]
        self.bytes_sent = 0
        """Bytes that this rank has sent in the round so far, without headers."""

    def begin(self) -> None:
        """Forget what was sent and received before."""
        self._received = [Digest() for _ in self._received]
        self.bytes_sent = 0

    def reports(self, own: Tensor) -> list[Tensor]:
        """The reports [n_tiles] of all ranks, of which this is the own one."""
        message = torch.zeros(self._reports.size // 2, dtype=own.dtype, device=self._device)
        message[: self._n_tiles] = own
        found = self._send(self._reports, message.view(torch.uint8))
        return [row.view(own.dtype)[: self._n_tiles] for row in found]

    def payloads(self, own: Payload, block: Block) -> list[Payload]:
        """The values of all ranks on the block, of which these are the own ones."""
        found = self._send(self._values, own.packed(self._values.size))
        return [Payload.unpacked(row, block, self._dtype) for row in found]

    def received(self) -> tuple[bytes, ...]:
        """A digest of all that came from each rank in this round."""
        return tuple(digest.value() for digest in self._received)

    def testimonies(self, own: Testimony) -> list[Testimony]:
        """What all ranks say about this round."""
        found = self._testimonies.send(own.packed().to(self._device))
        self.bytes_sent += self._testimonies.bytes_sent
        return [Testimony.unpacked(row) for row in found]

    def _send(self, channel: Channel, message: Tensor) -> Tensor:
        found = channel.send(message)
        self.bytes_sent += channel.bytes_sent
        # The digests cover the bytes as they arrived, before anything decodes them: ranks that
        # received the same bytes agree even if the content is not valid.
        for digest, row in zip(self._received, found, strict=True):
            digest.add(row)
        return found
