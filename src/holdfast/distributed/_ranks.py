"""All ranks of a program that every rank runs in the same way."""

import gc
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.checks import failure
from holdfast.distributed._collectives import all_gather
from holdfast.distributed._replicas import checksum
from holdfast.distributed._roll_call import RollCall
from holdfast.errors import RankFailedError, RanksDifferError

T = TypeVar("T")


@final
class Ranks:
    """The ranks of the default process group, which all run the same program on equal values.

    Every method is a collective: all ranks must call it at the same point of the program. An error
    on one rank is raised on all of them.

    Args:
        common: what must be equal on all ranks, by name, such as the configuration.
        device: where the tensors of this rank live.
        timeout: how long to wait for the others at the start.

    Attributes:
        n: number of ranks.
        rank: the number of this one.
        members: all ranks with their hosts and devices.
        group: the process group.
    """

    def __init__(
        self,
        common: Mapping[str, object],
        *,
        device: torch.device | str = "cpu",
        timeout: timedelta = timedelta(minutes=5),
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise failure("Ranks", "be made after init_process_group", "no process group")
        self.group = dist.distributed_c10d._get_default_group()
        self.n, self.rank, self.device = self.group.size(), self.group.rank(), torch.device(device)
        self._roll = RollCall(self.group, self.device, common, timeout, call="Ranks")
        self.members = tuple(self._roll.members)
        self._step = 0

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and prints output."""
        return self.rank == 0

    def begin_step(self) -> None:
        """Tell the others that this rank has reached the collectives of the next step."""
        self._step += 1
        self._roll.beat(self._step)

    def naming(self) -> AbstractContextManager[None]:
        """A block of collectives; if one fails, the error names the ranks that are missing."""
        return self._roll.naming(self._step)

    def gather(self, tensor: Tensor) -> Tensor:
        """[n, ...] the tensors of all ranks, of one shape."""
        with self.naming():
            return all_gather(tensor, self.group)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on some rank."""
        return bool(self.gather(torch.tensor([float(flag)], device=self.device)).any())

    def from_first(self, value: T) -> T:
        """The value of rank 0 on every rank; the values of other ranks are ignored."""
        found: list[Any] = [value]
        with self.naming():
            dist.broadcast_object_list(found, src=0, group=self.group)
        result: T = found[0]
        return result

    def together(self, work: Callable[[], T]) -> T:
        """Do the work of this rank; if it fails on some rank, all ranks raise that error."""
        error, result = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        found: list[Any] = [None] * self.n
        with self.naming():
            dist.all_gather_object(found, _packed(error), group=self.group)
        if error is not None:
            raise error
        for member, other in zip(self.members, found, strict=True):
            if other is not None:
                raise _named(pickle.loads(other), str(member))
        return result  # type: ignore[return-value]

    def close(self) -> None:
        """End the process group."""
        gc.collect()  # gloo may abort a process that still holds parts of a group at its end
        dist.destroy_process_group()

    def check_same(self, tensors: Iterable[Tensor]) -> None:
        """Raise an error on all ranks, with names, if the tensors of one differ in any bit."""
        own = torch.tensor([checksum(tensors)], dtype=torch.int64, device=self.device)
        sums = self.gather(own)[:, 0].tolist()
        usual = Counter(sums).most_common(1)[0][0]
        different = [str(m) for m, one in zip(self.members, sums, strict=True) if one != usual]
        if different:
            raise RanksDifferError(f"parameters of {', '.join(different)} differ from the others'.")


def _packed(error: Exception | None) -> bytes | None:
    """The error as bytes; one of another class with the same text if it cannot be pickled."""
    if error is None:
        return None
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:
        return pickle.dumps(RankFailedError(f"{type(error).__name__}: {error}"))
    return packed


def _named(error: Exception, member: str) -> Exception:
    """The error of another rank, with the rank in its message where it has one."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} (on {member})",)
    return error
