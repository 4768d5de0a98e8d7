"""Who takes part: introductions at the start, signs of life at every step."""

import json
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import count
from typing import final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from holdfast.errors import RankFailedError, RanksDifferError

_calls = count()
"""Numbers the introductions of this process; all ranks make them in the same order."""


@dataclass(frozen=True)
class Member:
    """One rank of the process group.

    Attributes:
        rank: its number in the group.
        host: the name of its machine.
        pid: its process on that machine.
        device: where its tensors live.
    """

    rank: int
    host: str
    pid: int
    device: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, process {self.pid}, {self.device})"


def restart_count() -> int:
    """How often torchrun has restarted the processes; 0 without torchrun."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@final
class RollCall:
    """The ranks of a group, known by name.

    Ranks meet in the group's key-value store instead of in a collective: a rank that does not come
    is then known, and so is a rank that would have entered another collective.

    Args:
        group: the ranks.
        device: where this rank's tensors live.
        description: what must be equal on all ranks, by name.
        timeout: how long to wait for the others.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        device: torch.device,
        description: Mapping[str, object],
        timeout: timedelta,
    ) -> None:
        # Keys of an earlier attempt under torchrun stay in the store.
        prefix = f"holdfast/{restart_count()}/{next(_calls)}"
        self._store = PrefixStore(prefix, group.get_group_store())
        self._rank = group.rank()
        me = Member(self._rank, platform.node(), os.getpid(), str(device))
        texts = {name: str(value) for name, value in description.items()}
        self._store.set(f"member/{self._rank}", json.dumps([asdict(me), texts]))
        found = [self._introduced(rank, timeout) for rank in range(group.size())]
        self.members = [member for member, _ in found]
        _check_equal(self.members, [texts for _, texts in found])

    def _introduced(self, rank: int, timeout: timedelta) -> tuple[Member, dict[str, str]]:
        key = f"member/{rank}"
        try:
            self._store.wait([key], timeout)
        except RuntimeError as error:
            seconds = timeout.total_seconds()
            raise RankFailedError(
                f"rank {rank} did not call `guard` within {seconds:.0f} seconds."
            ) from error
        member, texts = json.loads(self._store.get(key))
        return Member(**member), texts

    def beat(self, step: int) -> None:
        """Tell that this rank has reached the collectives of this step."""
        self._store.set(f"step/{self._rank}", str(step))

    @contextmanager
    def naming(self, step: int) -> Iterator[None]:
        """Turn the failure of a collective into an error that names the ranks that are missing."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, (RankFailedError, RanksDifferError)):
                raise
            raise RankFailedError(self._absence(step, error)) from error

    def _absence(self, step: int, error: RuntimeError) -> str:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        try:
            absent = [str(m) for m in self.members if self._last_step(m.rank) < step]
        except RuntimeError:
            return f"step {step} failed, and the store that knows the ranks is lost: {cause}"
        if not absent:
            return f"step {step} failed, although every rank had reached it: {cause}"
        return f"{', '.join(absent)} did not reach step {step}: {cause}"

    def _last_step(self, rank: int) -> int:
        key = f"step/{rank}"
        return int(self._store.get(key)) if self._store.check([key]) else -1


def _check_equal(members: list[Member], descriptions: list[dict[str, str]]) -> None:
    """Raise the same error on every rank if one of them describes itself differently."""
    names = sorted(set().union(*descriptions))
    for name in names:
        values = [texts.get(name, "nothing") for texts in descriptions]
        usual = Counter(values).most_common(1)[0][0]
        for member, value in zip(members, values, strict=True):
            if value != usual:
                raise RanksDifferError(
                    f"`{name}` must be the same on all ranks, got {value} on {member}, "
                    f"where most have {usual}."
                )
