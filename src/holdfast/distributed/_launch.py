"""The start of a process group that survives restarts."""

from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from holdfast.distributed._meeting import meet


def init_process_group(
    backend: str | None = None, *, timeout: timedelta = timedelta(minutes=10)
) -> None:
    """Call `torch.distributed.init_process_group` as torchrun's environment says.

    After a restart, torchrun's key-value store still holds the addresses of the dead processes, and
    gloo would connect to them. Each attempt therefore gets new keys, on which the ranks agree,
    because nodes may count torchrun's restarts differently.

    Args:
        backend: "gloo", "nccl", or None for torch's choice.
        timeout: how long a collective waits for a rank before it fails.
    """
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    ranks = PrefixStore("holdfast", store)
    name = meet(ranks, rank, world_size, timeout, "call `init_process_group`")
    dist.init_process_group(
        backend,
        store=PrefixStore(name, ranks),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
    )
