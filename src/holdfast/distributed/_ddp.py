"""The guard of DistributedDataParallel: a communication hook."""

import queue
import threading
from collections.abc import Callable
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future

from holdfast.checks import failure
from holdfast.distributed._guard import Guard
from holdfast.distributed._modes import Sent

Arrived = tuple[Sent, Future[Tensor]]


@final
class BucketReducer:
    """Reduces the gradients of all buckets together, once the last of them is ready.

    The buckets travel while the backward pass goes on; the rule waits for the last one.

    Args:
        guard: reduces.
        at_end: called at the end of every step, before the gradients are handed over.
    """

    def __init__(self, guard: Guard, at_end: Callable[[], None]) -> None:
        self._guard, self._at_end = guard, at_end
        self._arrived: list[Arrived] = []

    def take(self, bucket: GradBucket) -> Future[Tensor]:
        vector = _checked(bucket)
        step = self._guard.n_steps
        if bucket.index() == 0:
            self._arrived = []  # a backward pass that failed may have left some
            self._guard.roll.beat(step)
        future: Future[Tensor] = _future(vector)
        with self._guard.roll.naming(step):
            self._arrived.append((self._guard.mode.send(vector), future))
            if bucket.is_last():
                arrived, self._arrived = self._arrived, []
                self._finish(arrived)
        return future

    def _finish(self, arrived: list[Arrived]) -> None:
        guard = self._guard
        tensors = [sent.wait() for sent, _ in arrived]
        # Buckets of different dtypes are measured, and summed, in the widest of them.
        dtype = reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
        columns = guard.reduce([tensor.to(dtype) for tensor in tensors], zero_is_absent=True)
        guard.end_step()
        self._at_end()
        parts = columns.split([tensor.shape[1] for tensor in tensors])
        for (sent, future), part in zip(arrived, parts, strict=True):
            result = guard.mode.whole(part.to(sent.rows.dtype), sent.size)
            # The reducer reads the storage from its start, also that of a view.
            future.set_result(result.clone() if result.storage_offset() else result)


@final
class SingleBucketReducer:
    """Reduces every bucket by itself, in a thread, while the backward pass goes on.

    The thread takes the buckets in their order, which is the same on every rank, and has a process
    group of its own, so that its collectives do not mix with those of other threads.
    """

    def __init__(self, guard: Guard, at_end: Callable[[], None]) -> None:
        self._guard, self._at_end = guard, at_end
        self._buckets: queue.SimpleQueue[tuple[Tensor, Future[Tensor], bool]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="holdfast guard", daemon=True).start()

    def take(self, bucket: GradBucket) -> Future[Tensor]:
        vector = _checked(bucket)
        if bucket.index() == 0:
            self._guard.roll.beat(self._guard.n_steps)
        future: Future[Tensor] = _future(vector)
        self._buckets.put((vector, future, bucket.is_last()))
        return future

    def _run(self) -> None:
        while True:
            vector, future, is_last = self._buckets.get()
            try:
                result = self._reduced(vector, is_last)
            except BaseException as error:  # DistributedDataParallel raises it in its own thread
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                future.set_result(result)

    def _reduced(self, vector: Tensor, is_last: bool) -> Tensor:
        guard = self._guard
        with guard.roll.naming(guard.n_steps):
            sent = guard.mode.send(vector)
            columns = guard.reduce([sent.wait()], zero_is_absent=False)
            if is_last:
                guard.end_step()
                self._at_end()
            return guard.mode.whole(columns, sent.size)


def guarded(
    state: BucketReducer | SingleBucketReducer, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The communication hook, which DistributedDataParallel wants to be a function."""
    return state.take(bucket)


def _checked(bucket: GradBucket) -> Tensor:
    vector: Tensor = bucket.buffer()
    if vector.layout is not torch.strided:
        raise failure("model", "have dense gradients (sparse=False)", "a sparse gradient")
    return vector


def _future(vector: Tensor) -> Any:
    return Future(devices=[vector.device] if vector.device.type != "cpu" else None)
