"""The state of an exchange that all ranks share, after a restart."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.checks import failure
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

    def check(self, saved: dict[str, Tensor]) -> None:
        """Raise an error if the tensors have other names, shapes or dtypes than the present ones."""
        wanted, found = _kinds(self.tensors), _kinds(saved)
        if found != wanted:
            raise failure("state", f"hold {wanted}, as with these options", found)

    def settle(self, saved: dict[str, Tensor] | None) -> tuple[dict[str, Tensor] | None, list[int]]:
        """The state of the majority of all ranks, and the ranks that did not have it.

        A majority of the ranks that have a state would not do: on the first start, a single liar
        could bring one. Nothing is unpickled, and what was copied is compared with the majority's
        digest. All ranks call it. Without a state on any rank, there is none.

        Args:
            saved: what this rank has saved; None if it has nothing.
        """
        own = None if saved is None else self._packed(saved)
        digests = self._digests(own)
        n, having = len(digests), [rank for rank, digest in enumerate(digests) if digest]
        if not having:
            return None, []
        usual, count = Counter(digests[rank] for rank in having).most_common(1)[0]
        if 2 * count <= n:
            holders = [rank for rank in having if digests[rank] == usual]
            found = f"only {count} of {n} ranks have the same state: {self._names(holders)}"
            raise RanksDifferError(f"{found}. With None on all ranks the exchange begins anew.")
        fresh = [rank for rank, digest in enumerate(digests) if digest != usual]
        if not fresh:
            return saved, []
        log.warning(
            "%s had no state of this round, and begin with an empty memory", self._names(fresh)
        )
        message = (self._packed(self.tensors) if own is None else own).to(self.device)
        source = dist.get_global_rank(self.group, digests.index(usual))
        dist.broadcast(message, source, group=self.group)
        if Digest(message).value() != usual:
            raise RanksDifferError(f"{self.members[digests.index(usual)]} sent another state.")
        return self._unpacked(message.cpu()), fresh

    def _names(self, ranks: Sequence[int]) -> str:
        return ", ".join(str(self.members[rank]) for rank in ranks)

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


def _kinds(tensors: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {list(one.shape)} {one.dtype}" for name, one in tensors.items())


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
