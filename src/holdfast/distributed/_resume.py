"""The state of an exchange that all ranks share, after a restart."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.distributed._collectives import Channel
from holdfast.distributed._roll_call import Member
from holdfast.distributed._testimony import DIGEST, Digest
from holdfast.errors import RanksDifferError

log = logging.getLogger("holdfast")


@final
@dataclass(frozen=True, eq=False)
class CommonState:
    """Named tensors that all ranks have alike, as bytes that can be compared and copied.

    Args:
        tensors: the present state, for the shapes and dtypes.
        group: the ranks.
        members: their names.
        device: where messages live.
    """

    tensors: dict[str, Tensor]
    group: dist.ProcessGroup
    members: Sequence[Member]
    device: torch.device

    def settle(self, saved: dict[str, Tensor] | None) -> tuple[dict[str, Tensor] | None, bool]:
        """The state of the majority of the ranks that have one, and whether it is this rank's own.

        Nothing is unpickled, and what was copied is compared with the majority's digest. All ranks
        call it. Without a state on any rank, there is none.

        Args:
            saved: what this rank has saved; None if it has nothing.
        """
        own = None if saved is None else self._packed(saved)
        digests = self._digests(own)
        having = [rank for rank, digest in enumerate(digests) if digest is not None]
        if not having:
            return None, False
        usual, count = Counter(digests[rank] for rank in having).most_common(1)[0]
        if 2 * count <= len(having) and count < len(having):
            raise RanksDifferError("no majority of the ranks that have a state has the same one.")
        fresh = [rank for rank, digest in enumerate(digests) if digest != usual]
        if not fresh:
            return saved, True
        names = ", ".join(str(self.members[rank]) for rank in fresh)
        log.warning("%s had no state of this round, and begin with an empty memory", names)
        message = self._packed(self.tensors) if own is None else own
        message = message.to(self.device)
        source = dist.get_global_rank(self.group, digests.index(usual))
        dist.broadcast(message, source, group=self.group)
        if Digest(message).value() != usual:
            raise RanksDifferError(f"{self.members[digests.index(usual)]} sent another state.")
        return self._unpacked(message.cpu()), self.group.rank() not in fresh

    def _digests(self, own: Tensor | None) -> list[bytes | None]:
        """The digest of each rank's state; None if it has none."""
        content = bytes([own is not None] + [0] * 7) + (
            bytes(DIGEST) if own is None else Digest(own).value()
        )
        # No matter how many hosts there are, for a message of 24 bytes.
        channel = Channel(len(content), self.group, self.device, is_on_one_host=True)
        given = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.device)
        found = [bytes(row.tolist()) for row in channel.send(given)]
        return [row[8:] if row[0] else None for row in found]

    @staticmethod
    def _packed(tensors: dict[str, Tensor]) -> Tensor:
        parts = [one.cpu().contiguous().flatten().view(torch.uint8) for one in tensors.values()]
        return torch.cat(parts)

    def _unpacked(self, message: Tensor) -> dict[str, Tensor]:
        sizes = [one.numel() * one.element_size() for one in self.tensors.values()]
        parts = zip(self.tensors.items(), message.split(sizes), strict=True)
        # Cloned, because a part may begin anywhere, and numbers may not.
        return {
            name: part.clone().view(one.dtype).view(one.shape).to(one.device)
            for (name, one), part in parts
        }


def common_tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    """The part of a state that all ranks have in common, as tensors."""
    agreed, velocity = state["agreed"], state["outer"]["velocity"]
    found = {
        "numbers": torch.tensor([state["n_steps"], agreed["round"]]),
        "waits": agreed["waits"],
        "scores": agreed["scores"],
    }
    return found if velocity is None else found | {"velocity": velocity}


def describe_forgotten(state: dict[str, Any], n: int) -> None:
    """Warn about memories of an earlier run that belong to no rank of this one."""
    if state["n_ranks"] > n:
        last = state["n_ranks"] - 1
        which = f"rank {n} is" if last == n else f"ranks {n} to {last} are"
        log.warning("the memory of %s forgotten: there are %d ranks now", which, n)
