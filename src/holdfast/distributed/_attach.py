"""From a model in DDP, FSDP2 or neither to its guard."""

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

import holdfast
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
    """Put a robust rule in the place of the all-reduce, so that a bad rank is left out and named.

    Call it once on every rank, after the model was wrapped and before the first backward pass. The
    training loop does not change. With nothing wrong, the default rule is the mean.

    All ranks must make the same backward passes, as without a guard: a rank that makes fewer of
    them is named once the timeout of the process group is over. What the guard knows may be read on
    any rank by itself.

    In `DistributedDataParallel.join`, a rank without data sends zeros and counts as left out, as
    does a rank whose whole gradient is zero; if fewer ranks have data than the rule needs, zeros
    count as rows. At the end of `join`, the wrapper copies the parameters of the rank that came
    last. A plain module is reduced in its optimizer's step, which all ranks must make: a gradient
    scaler that skips the step of one rank must not be used with it, and a closure is refused.

    Args:
        model: a module in `DistributedDataParallel`, or one that `fully_shard` was applied to, or a
            plain module with the same parameters on all ranks.
        rule: the rule or its name. It must outvote one rank, so two ranks are too few; `"mean"`
            leaves out only rows that are not finite.
        optimizer: the optimizer of a plain module; its steps begin with the rule.
        nodes: the group (or 1-D mesh) of ranks that hold the same shard in different nodes, for a
            model that `fully_shard` has sharded within each node. Rows are then whole nodes.
        per: what is one row: the whole "model" (the default, except for `fully_shard`), a "bucket"
            of DistributedDataParallel (reduced while the backward pass goes on), or a "unit" of
            `fully_shard`. A rule per bucket or unit decides for each block of columns by itself.
        mode: "sharded": every rank reduces its own columns of all rows, with the traffic of an
            all-reduce, for ranks that may compute garbage but follow the protocol. "gathered":
            every rank gets everything and trusts no other, with n times the traffic.
        check_every: after so many steps, checksums of the parameters are compared; 0 for never. Not
            for shards, of which there is only one.
        on_mismatch: what to do if the parameters of a rank differ from those of the majority:
            "warn", "raise", or "copy" those of the majority.
        window: number of steps that :meth:`Guard.suspects` looks at.
        on_suspect: called, on every rank, with a row that becomes suspect; by default a warning is
            logged. An error that it raises on one rank leaves the others waiting at the next step.
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
    common = {"torch": torch.__version__, "holdfast": holdfast.__version__, "rule": rule}
    common |= {"options": options, **tensors_of(model)}
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
    """What all ranks do together at the end of a step, besides reducing gradients."""
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
