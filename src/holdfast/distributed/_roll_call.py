"""Who takes part: introductions at the start, signs of life at every step."""

import hashlib
import json
import os
import platform
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

import holdfast
from holdfast.distributed._meeting import meet
from holdfast.distributed._processes import condition, place
from holdfast.errors import RankFailedError, RanksDifferError

PATIENCE = 5.0
"""Least time in seconds for the other ranks to notice that a step has failed."""


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


@final
class RollCall:
    """The ranks of a group, known by name.

    Ranks meet in the group's key-value store instead of in a collective. This identifies a rank
    that does not arrive, and a rank that would have entered another collective.

    Args:
        group: the ranks.
        device: where this rank's tensors live.
        description: what must be equal on all ranks, by name, beside the releases of the libraries.
        timeout: how long to wait for the others.
        call: what all ranks call to get here, for the error that names a missing rank.
        unit: what the numbers of :meth:`beat` count.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        device: torch.device,
        description: Mapping[str, object],
        timeout: timedelta,
        *,
        call: str,
        unit: str = "step",
    ) -> None:
        self._rank, self._n, self._timeout = group.rank(), group.size(), timeout
        self._unit = unit
        store = PrefixStore("holdfast", group.get_group_store())
        name = meet(store, self._rank, group.size(), timeout, f"call `{call}`")
        self._store = PrefixStore(name, store)
        self._n_agreed = 0
        self._last_beat, self._step_seconds = time.monotonic(), 0.0
        me, here = Member(self._rank, platform.node(), os.getpid(), str(device)), place()
        common = {"torch": torch.__version__, "holdfast": holdfast.__version__, **description}
        texts = json.dumps({name: str(value) for name, value in common.items()})
        digest = hashlib.sha256(texts.encode()).hexdigest()
        # Every rank reads what all ranks have written, so that the long texts are only for errors.
        self._store.set(f"description/{self._rank}", texts)
        self._store.set(f"member/{self._rank}", json.dumps([asdict(me), here, digest]))
        found = self._read_all("member", call)
        self.members = [Member(**member) for member, _, _ in found]
        self._neighbors = [i for i, (_, there, _) in enumerate(found) if here and there == here]
        if len({digest for _, _, digest in found}) > 1:
            _check_equal(self.members, self._read_all("description", call))

    def agree(self, call: str, value: object) -> None:
        """Wait for all ranks to make the same call; raise an error if one does not.

        Args:
            call: the name of the method.
            value: what must be equal on all ranks.
        """
        self._n_agreed += 1
        topic = f"agreed/{self._n_agreed}"
        self._store.set(f"{topic}/{self._rank}", json.dumps({call: str(value)}))
        _check_equal(self.members, self._read_all(topic, call))

    def _read_all(self, topic: str, call: str) -> list[Any]:
        """What each of the ranks has written about a topic in the course of a call."""
        found = []
        for rank in range(self._n):
            key = f"{topic}/{rank}"
            try:
                self._store.wait([key], self._timeout)
            except RuntimeError as error:
                seconds = self._timeout.total_seconds()
                message = f"rank {rank} did not call `{call}` in {seconds:g} seconds."
                raise RankFailedError(message) from error
            found.append(json.loads(self._store.get(key)))
        return found

    def beat(self, step: int) -> None:
        """Tell that this rank has reached the collectives of this step."""
        now = time.monotonic()
        self._step_seconds, self._last_beat = now - self._last_beat, now
        self._store.set(f"step/{self._rank}", str(step))

    @contextmanager
    def naming(self, step: int) -> Iterator[None]:
        """Turn the failure of a collective into an error that names the ranks that are missing.

        A broken step fails on every rank that is alive, and each of them reports it in the store.
        Ranks that report nothing are missing. If no rank is missing, the error names the rank on
        which the step failed first.
        """
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, (RankFailedError, RanksDifferError)):
                raise
            raise RankFailedError(self._explained(step, error)) from error

    def _explained(self, step: int, error: RuntimeError) -> str:
        found: list[str] = []
        # A store whose process is stopped does not answer, and a question to it has no timeout.
        asking = threading.Thread(
            target=lambda: found.append(self._asked(step, error)), daemon=True
        )
        asking.start()
        gone: dict[int, str] = {}
        deadline = time.monotonic() + self._patience() + PATIENCE
        while asking.is_alive() and time.monotonic() < deadline:
            # The first that are gone are the cause. The others end soon after, with errors.
            gone = gone or self._gone()
            asking.join(0.1)
        if any(found):
            return found[0]
        cause = _cause(error)
        if gone := gone or self._gone():
            return self._sentence(step, gone, cause)
        state = "does not answer" if asking.is_alive() else "is lost"
        return f"{self._unit} {step} failed, and the key-value store {state}: {cause}."

    def _asked(self, step: int, error: RuntimeError) -> str:
        """What the store knows of the failure; empty if the store is lost."""
        cause = _cause(error)
        try:
            self._store.set(f"failed/{self._rank}", cause)
            if self._store.add("failures", 1) == 1:
                self._store.set("first failure", str(self._rank))
            missing = {} if isinstance(error, torch.OutOfMemoryError) else self._missing(step)
            if missing:
                return self._sentence(step, missing, cause)
            first = int(self._store.get("first failure"))
            cause = self._store.get(f"failed/{first}").decode()
        except RuntimeError:
            return ""
        return f"{self._unit} {step} failed first on {self.members[first]}: {cause}."

    def _sentence(self, step: int, missing: dict[int, str], cause: str) -> str:
        names = ", ".join(f"{self.members[rank]} {what}" for rank, what in missing.items())
        return f"{self._unit} {step}: {names}: {cause}."

    def _patience(self) -> float:
        """Seconds that the other ranks have to notice a failure."""
        # A rank that is still in its forward pass notices only after it.
        return max(PATIENCE, 2 * self._step_seconds)

    def _missing(self, step: int) -> dict[int, str]:
        """The ranks for which the step has not failed, and what is known of them."""
        deadline = time.monotonic() + self._patience()
        n = len(self.members)
        # One question to the store at a time, however many ranks there are.
        while self._store.add("failures", 0) < n and time.monotonic() < deadline:
            # Processes of this machine need no patience.
            gone = {rank: what for rank, what in self._gone().items() if self._is_silent(rank)}
            if gone:
                return gone
            time.sleep(0.1)
        silent = [rank for rank in range(n) if self._is_silent(rank)]
        # If most ranks notice nothing, the error is this rank's own.
        is_own = 2 * len(silent) > n
        return {} if is_own else {rank: self._last_seen(rank, step) for rank in silent}

    def _gone(self) -> dict[int, str]:
        """The ranks on this machine that have ended or are stopped."""
        found = {rank: condition(self.members[rank].pid) for rank in self._neighbors}
        return {rank: what for rank, what in found.items() if what}

    def _is_silent(self, rank: int) -> bool:
        return not self._store.check([f"failed/{rank}"])

    def _last_seen(self, rank: int, step: int) -> str:
        key = f"step/{rank}"
        last = int(self._store.get(key)) if self._store.check([key]) else -1
        return "did not reach it" if last < step else "was lost in it"


def _cause(error: RuntimeError) -> str:
    """The first sentence of a message of torch, without the place in its source."""
    text = re.sub(r"^\[[^]]*\] *", "", str(error)) or type(error).__name__
    return text.splitlines()[0].split(". ")[0].rstrip(".")


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
