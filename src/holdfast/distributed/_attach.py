"""Attach a guard to a model in DDP, to an FSDP2 model, or to a plain model."""

from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from holdfast.aggregators import Aggregator, as_rule
from holdfast.checks import check_count, failure
from holdfast.distributed._guard import Guard
from holdfast.distributed._replicas import OnMismatch, Replicas, SharedBuffers
from holdfast.distributed._roll_call import RollCall
from holdfast.distributed._suitable import Nodes, check_rule, tensors_of
from holdfast.distributed._targets import ModeName, Per, Target, target_of
from holdfast.monitor import Suspect


def guard(
    model: nn.Module,
    rule: Aggregator | str = "radius-filter",
    *,
    optimizer: Optimizer | None = None,
    nodes: Nodes | None = None,
    per: Per | None = None,
    mode: ModeName = "sharded",
    check_every: int = 100,
    on_mismatch: OnMismatch = "warn",
    window: int = 200,
    on_suspect: Callable[[Suspect], None] | None = None,
    timeout: timedelta = timedelta(seconds=60),
) -> Guard:
    """Replace the all-reduce by a robust rule that leaves out bad ranks and names them.

    Call it once on every rank, after wrapping the model and before the first backward pass. The
    training loop does not change. While nothing is wrong, the default rule is the mean.

    All ranks must run the same backward passes, as without a guard. A rank that runs fewer of them
    is named after the timeout of the process group. Any single rank may read the attributes of the
    guard.

    In `DistributedDataParallel.join`, a rank without data sends zeros and counts as left out, like
    a rank whose whole gradient is zero. If fewer ranks have data than the rule needs, zeros count
    as rows. At the end of `join`, the wrapper copies the parameters of the rank that finished last.
    The gradients of a plain module are reduced in its optimizer's step, which all ranks must call:
    do not use a gradient scaler that skips the step on one rank only, or a closure.

    Args:
        model: a module in `DistributedDataParallel`, or one that `fully_shard` was applied to, or a
            plain module with the same parameters on all ranks.
        rule: the rule or its name. It must resist one bad rank, which needs at least three ranks;
            `"mean"` leaves out only rows that are not finite and works with two.
        optimizer: the optimizer of a plain module; the rule runs at the beginning of its steps.
        nodes: the group (or 1-D mesh) of ranks that hold the same shard in different nodes, for a
            model that `fully_shard` has sharded within each node. Rows are then whole nodes.
        per: what is one row: the whole "model" (the default, except for `fully_shard`), a "bucket"
            of DistributedDataParallel (reduced during the backward pass), or a "unit" of
            `fully_shard`. A rule per bucket or unit decides for each block of columns separately.
        mode: "sharded": every rank reduces its own columns of all rows, with the traffic of an
            all-reduce, for ranks that may compute garbage but follow the protocol. "gathered":
            every rank receives all rows and trusts no other rank, with n times the traffic.
        check_every: number of steps between comparisons of the parameters' checksums; 0 for never.
            Shards of which there is only one copy are not compared.
        on_mismatch: what to do if the parameters of a rank differ from those of the majority:
            "warn", "raise", or "copy" those of the majority.
        window: number of steps that :meth:`Guard.suspects` considers.
        on_suspect: called on every rank with each row that becomes suspect; by default a warning is
            logged. If it raises an error on one rank, the other ranks wait at the next step.
        timeout: how long to wait for the other ranks to call this function, :meth:`Guard.exclude`
            or :meth:`Guard.load_state_dict`.
    """
    rule = as_rule(rule)
    check_count("check_every", check_every)
    if not (dist.is_available() and dist.is_initialized()):
        raise failure("guard", "be called after init_process_group", "no process group")
    target = target_of(model, optimizer, nodes)
    per = target.choices[0] if per is None else per
    _check_choice("per", per, target.choices)
    _check_choice("mode", mode, ("sharded", "gathered"))
    _check_choice("on_mismatch", on_mismatch, ("warn", "raise", "copy"))
    check_rule(rule, target.group.size())
    options = (type(target).__name__, per, mode, check_every, on_mismatch, window)
    common = {"rule": rule, "options": options, **tensors_of(model)}
    roll = RollCall(target.everyone, target.device, common, timeout, call="guard")
    members = [roll.members[rank] for rank in target.positions()]
    if per == "bucket":  # in a thread, whose collectives must not mix with those of others
        target.use_own_group()
    is_on_one_host = len({member.host for member in roll.members}) == 1
    travels = target.mode(mode, is_on_one_host=is_on_one_host)
    found = Guard(rule, travels, roll, members, window=window, on_suspect=on_suspect)
    target.attach(found, per, _end_of_step(found, target, check_every, on_mismatch))
    return found


def _end_of_step(
    found: Guard, target: Target, check_every: int, on_mismatch: OnMismatch
) -> Callable[[], None]:
    """The work that all ranks do together at the end of a step, after reducing gradients."""
    buffers = SharedBuffers(target.buffers, target.group)
    replicas = Replicas(
        target.parameters(),
        target.group,
        target.everyone,
        target.shard,
        found.roll.members,
        on_mismatch,
        target.device,
    )

    def at_end() -> None:
        if target.combines_buffers:
            buffers.combine()
        if target.has_copies and check_every and (found.n_steps + 1) % check_every == 0:
            replicas.check()

    return at_end


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        allowed = " or ".join(map(repr, choices))
        raise failure(name, f"be {allowed} here", repr(value))
