"""The ranks' statements about a round before it ends, and the check that they agree."""

import ctypes
import hashlib
import struct
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.distributed._roll_call import Member
from holdfast.errors import RanksDifferError

HEAD = struct.Struct("<qqq")
"""Number of the round, updates that were left out, and whether the direction is missing."""

DIGEST = 16
"""Bytes of a digest, enough to make collisions infeasible."""


@final
@dataclass(frozen=True, kw_only=True)
class Testimony:
    """What one rank has received and computed in a round.

    Attributes:
        round: the number of the round.
        received: a digest of all that came from each rank.
        block: a digest of the block that it has chosen.
        direction: a digest of the direction that it has computed.
        buffers: a digest of the buffers of the model.
        has_failed: whether it could not compute a direction.
        n_left_out: how many updates of its own it has left out so far.
    """

    round: int
    received: tuple[bytes, ...]
    block: bytes
    direction: bytes
    buffers: bytes
    has_failed: bool
    n_left_out: int

    @staticmethod
    def size(n: int) -> int:
        """Bytes of a testimony about n ranks."""
        return HEAD.size + DIGEST * (n + 3)

    def packed(self) -> Tensor:
        """The testimony as bytes (uint8)."""
        head = HEAD.pack(self.round, self.n_left_out, self.has_failed)
        parts = [head, *self.received, self.block, self.direction, self.buffers]
        return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)

    @classmethod
    def unpacked(cls, message: Tensor) -> "Testimony":
        """The testimony from its bytes."""
        content = bytes(message.tolist())
        number, n_left_out, has_failed = HEAD.unpack(content[: HEAD.size])
        digests = [content[at : at + DIGEST] for at in range(HEAD.size, len(content), DIGEST)]
        *received, block, direction, buffers = digests
        return cls(
            round=number,
            received=tuple(received),
            block=block,
            direction=direction,
            buffers=buffers,
            has_failed=bool(has_failed),
            n_left_out=n_left_out,
        )


@final
class Digest:
    """A digest (SHA-256, cut) of the bytes of tensors.

    A weighted sum would be faster, but an attacker could construct two messages with equal sums.
    """

    def __init__(self, *tensors: Tensor) -> None:
        self._found = hashlib.sha256()
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: Tensor) -> None:
        """Take in a tensor."""
        content = tensor.detach().cpu().contiguous()
        size = content.numel() * content.element_size()
        if size:  # read in place, without NumPy, which torch does not need
            self._found.update((ctypes.c_ubyte * size).from_address(content.data_ptr()))

    def value(self) -> bytes:
        """The digest of what was taken in so far."""
        return self._found.digest()[:DIGEST]


def check_testimonies(members: Sequence[Member], said: Sequence[Testimony]) -> None:
    """Raise an error that names the deviating ranks if the ranks disagree about a round."""
    number = Counter(one.round for one in said).most_common(1)[0][0]
    what = f"round {number}"
    _check(members, said, "round", what, "sent the number of another round")
    dispute = describe_dispute(members, [one.received for one in said])
    if dispute:
        raise RanksDifferError(f"{what} was not made: {dispute}.")
    for name, how in (
        ("has_failed", "could not compute a direction"),
        ("block", "chose another block from the same reports"),
        ("direction", "computed another direction from the same values"),
        ("buffers", "received other buffers"),
    ):
        _check(members, said, name, what, how)


def _check(
    members: Sequence[Member], said: Sequence[Testimony], name: str, what: str, how: str
) -> None:
    """Check that all ranks say the same in the field of this name."""
    odd = _odd([getattr(one, name) for one in said])
    if odd:
        raise RanksDifferError(f"{what} was not made: {_names(members, odd)} {how}.")


def describe_dispute(members: Sequence[Member], received: Sequence[Sequence[Hashable]]) -> str:
    """Who sent different values to different ranks, or received others; empty if nobody did.

    Args:
        members: the ranks.
        received: for each rank, what it reports to have received from each rank.
    """
    n = len(members)
    odd = {sender: _odd([one[sender] for one in received]) for sender in range(n)}
    disputed = [sender for sender in range(n) if odd[sender]]
    if not disputed:
        return ""
    receivers = sorted(set().union(*(odd[sender] for sender in disputed)))
    if len(disputed) > 1 and len(receivers) == 1:
        return f"{_names(members, receivers)} received other values than the others"
    sent = f"{_names(members, disputed)} sent {_names(members, receivers)}"
    return f"{sent} other values than the others, or these report it wrongly"


def _odd(values: Sequence[Hashable]) -> list[int]:
    """The positions of the values that are not the most frequent one."""
    usual = Counter(values).most_common(1)[0][0]
    return [i for i, value in enumerate(values) if value != usual]


def _names(members: Sequence[Member], ranks: Sequence[int]) -> str:
    return " and ".join(str(members[rank]) for rank in ranks)
