"""The guard of DistributedDataParallel: a communication hook."""

import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
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

    The buckets are sent during the backward pass; the rule waits for the last one.

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
            self._guard.begin_step()
        future: Future[Tensor] = _future(vector)
        with self._guard.roll.naming(step):
            self._arrived.append((self._guard.mode.send(vector), future))
            if not bucket.is_last():
                return future
            arrived, self._arrived = self._arrived, []
            results = self._reduced(arrived)
            self._at_end()
        self._guard.end_step()
        for (_, one), result in zip(arrived, results, strict=True):
            one.set_result(result)
        return future

    def _reduced(self, arrived: list[Arrived]) -> list[Tensor]:
        guard = self._guard
        tensors = [sent.wait() for sent, _ in arrived]
        # Buckets of different dtypes are measured, and summed, in the widest of them.
        dtype = reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
        size = sum(sent.size for sent, _ in arrived)
        rows = [tensor.to(dtype) for tensor in tensors]
        columns = guard.reduce(rows, size=size, zero_is_absent=True)
        parts = columns.split([tensor.shape[1] for tensor in tensors])
        results = []
        for (sent, _), part in zip(arrived, parts, strict=True):
            result = guard.mode.whole(part.to(sent.rows.dtype), sent)
            # The reducer reads the storage from its start, also that of a view.
            results.append(result.clone() if result.storage_offset() else result)
        return results


Bucket = tuple[Tensor, Future[Tensor], bool]


@final
class SingleBucketReducer:
    """Reduces every bucket separately, in a thread, during the backward pass.

    The thread takes the buckets in their order, which is the same on every rank, and has its own
    process group, so that its collectives do not mix with those of other threads.
    """

    def __init__(self, guard: Guard, at_end: Callable[[], None]) -> None:
        self._guard, self._at_end = guard, at_end
        self._futures: list[Future[Tensor]] = []  # of this step
        self._buckets: queue.SimpleQueue[Bucket | None] = queue.SimpleQueue()
        # The thread ends with the reducer, which it must therefore not own.
        weakref.finalize(self, self._buckets.put, None)
        arguments = (weakref.ref(self), self._buckets)
        threading.Thread(target=_work, args=arguments, name="holdfast guard", daemon=True).start()

    def take(self, bucket: GradBucket) -> Future[Tensor]:
        vector = _checked(bucket)
        if bucket.index() == 0:
            for future in self._futures:  # a backward pass that failed may have left some
                with suppress(Exception):
                    future.wait()
            self._futures = []
            self._guard.begin_step()
        result: Future[Tensor] = _future(vector)
        self._futures.append(result)
        self._buckets.put((vector, result, bucket.is_last()))
        if bucket.is_last():
            # DistributedDataParallel makes nothing of an error in a future, so that it is raised
            # before it looks: at the end of the backward pass, or at once by a rank that has joined
            # and makes no backward pass.
            if torch._C._current_graph_task_id() == -1:
                self._wait()
            else:
                torch.autograd.Variable._execution_engine.queue_callback(self._wait)
        return result

    def _wait(self) -> None:
        futures, self._futures = self._futures, []
        for future in futures:
            future.wait()
        self._guard.end_step()

    def reduced(self, vector: Tensor, is_last: bool) -> Tensor:
        """The aggregate of the vectors of all ranks; in the thread."""
        guard = self._guard
        with guard.roll.naming(guard.n_steps):
            result = guard.reduce_vector(vector, zero_is_absent=False)
            if is_last:
                self._at_end()
        return result.clone() if result.storage_offset() else result


def _work(
    reducer: "weakref.ref[SingleBucketReducer]", buckets: "queue.SimpleQueue[Bucket | None]"
) -> None:
    while (bucket := buckets.get()) is not None:
        vector, future, is_last = bucket
        owner = reducer()
        if owner is None:
            return
        try:
            result = owner.reduced(vector, is_last)
        except BaseException as error:  # raised again in the thread of the backward pass
            future.set_exception(error)  # type: ignore[arg-type]
        else:
            future.set_result(result)
        del owner


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
