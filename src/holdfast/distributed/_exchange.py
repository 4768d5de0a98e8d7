"""The exchange over a process group: rounds of reports, block and values instead of steps."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from holdfast.aggregators import Aggregator, as_rule
from holdfast.checks import check_count, check_state, failure
from holdfast.distributed._replicas import Replicas
from holdfast.distributed._resume import CommonState, common_tensors, describe_forgotten
from holdfast.distributed._roll_call import RollCall
from holdfast.distributed._rounds import RankRounds
from holdfast.distributed._suitable import check_exchangeable, check_rule_of_tiles, tensors_of
from holdfast.distributed._updates import updates_of
from holdfast.exchange import AgreedBlock, OuterStep, Wire, WorkerMemory
from holdfast.monitor import Monitor, Suspect, have_little_weight

log = logging.getLogger("holdfast")


@final
class Exchange:
    r"""Ranks that send a small block of their updates, keep the rest, and trust no other rank.

    Replaces DistributedDataParallel and `optimizer.step()`. In every round each rank adds its
    update to its memory, reports the norms of its tiles, and sends its values on the block that
    follows from all reports. Every rank receives all rows of the block, applies the rule to them,
    and moves its parameters by the same direction. No rank decides for others, and a rank sends
    about 3 % of the model's bytes to each other rank. A liar controls its report and its row; the
    rule and :class:`~holdfast.exchange.AgreedBlock` bound the effect of both. ::

        exchange = Exchange(model, optimizer)
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            exchange.step()  # instead of optimizer.step()

    With `local_steps=None`, the update is the learning rate times the gradient, and every step is a
    round. With H local steps, every rank steps its own optimizer, and each H-th step is a round
    with the change of the parameters; each rank keeps its own optimizer state.

    A round is all or nothing. Before it ends, the ranks compare digests of everything they received
    and computed. If a digest differs, every rank raises a `RanksDifferError` that names the round
    and, if known, the rank; the parameters do not change, and the updates stay in the memories. Any
    rank can prevent a round in this way, and is then named. If a rank dies or hangs, a
    `RankFailedError` names it. Messages are not signed: the exchange trusts the transport and the
    key-value store to name the true sender.

    Running statistics and other buffers are combined by the coordinate median after each round.

    Args:
        model: a plain module, not in a wrapper, with the same parameters on most ranks; the others
            take those of the majority.
        optimizer: any optimizer of parameters of the model if there are `local_steps`; otherwise
            SGD without momentum, whose learning rates and weight decay are used.
        send: the share of the tiles that is sent in every round.
        rule: turns the rows of the block into a direction.
        tile: the number of columns that are reported and sent together.
        min_wait: rounds from sending a tile to sending it again; 0.1 / `send` by default.
        max_wait: rounds after which a tile comes first; 4 / `send` by default.
        report_every: rounds from one report to the next; None to draw blocks without reports.
        local_steps: H, or None.
        outer_lr: factor of the direction.
        outer_momentum: momentum of the directions.
        nesterov: whether that momentum is Nesterov's.
        beta: how much of a memory is kept from round to round.
        wire: how values travel: "float32", "bfloat16" or "int8"; rounding stays in the memory.
        check_every: number of rounds between comparisons of the parameters' checksums, after which
            a rank that differs takes the parameters of the majority; 0 for never.
        on_suspect: called on every rank with each rank that becomes suspect; by default a warning
            is logged.
        timeout: how long to wait for the other ranks here and in :meth:`load_state_dict`.

    Attributes:
        members: the ranks with their hosts and devices; row i is `members[i]`.
        agreed: the agreement on blocks, the same on every rank; `agreed.round` counts the rounds.
        memory: the memory of this rank.
        monitor: the monitor of the ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        send: float = 0.02,
        rule: Aggregator | str = "blockwise(tile=64) | geometric-median",
        tile: int = 64,
        min_wait: int | None = None,
        max_wait: int | None = None,
        report_every: int | None = 1,
        local_steps: int | None = None,
        outer_lr: float = 1.0,
        outer_momentum: float = 0.0,
        nesterov: bool = False,
        beta: float = 1.0,
        wire: Wire = "float32",
        check_every: int = 100,
        on_suspect: Callable[[Suspect], None] | None = None,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise failure("Exchange", "be made after init_process_group", "no process group")
        check_count("check_every", check_every)
        self.rule, self._check_every = as_rule(rule), check_every
        group = self._group = dist.distributed_c10d._get_default_group()
        self.n, self.rank = group.size(), group.rank()
        check_rule_of_tiles(self.rule, self.n, tile)
        layout = check_exchangeable(model, optimizer)
        self._updates = updates_of(layout, optimizer, local_steps)
        self.memory = WorkerMemory(layout, tile=tile, beta=beta, wire=wire)
        self.agreed = AgreedBlock(
            self.memory.tiling,
            send=send,
            min_wait=min_wait,
            max_wait=max_wait,
            report_every=report_every,
        )
        self._outer = OuterStep(layout, lr=outer_lr, momentum=outer_momentum, nesterov=nesterov)
        self._on_suspect = on_suspect or self._log_suspect
        self.monitor = Monitor(self.n, on_suspect=self._on_suspect)
        waits = (self.agreed.min_wait, self.agreed.max_wait, report_every)
        outer = (outer_lr, outer_momentum, nesterov)
        options = (send, tile, *waits, local_steps, *outer, beta, wire, check_every)
        common = {"options": str(options), "exchanged parameters": str(layout.names)}
        self._meet(model, common, timeout)

    def _meet(self, model: nn.Module, options: dict[str, str], timeout: timedelta) -> None:
        """Compare models and options with the other ranks, and take the majority's parameters."""
        common = tensors_of(model) | {"rule": str(self.rule)} | options
        group, device = self._group, self.memory.vector.device
        self._roll = RollCall(group, device, common, timeout, call="Exchange", unit="round")
        self.members = tuple(self._roll.members)
        self._rounds = RankRounds(
            self.agreed, self.memory, self.rule, self._outer, model.buffers, group, self.members
        )
        parameters = list(model.parameters())
        self._replicas = Replicas(parameters, group, group, 0, self.members, "copy", device)
        with self._roll.naming(0):
            self._updates.resume(None, self._settle)

    def __repr__(self) -> str:
        return f"Exchange({self.rule}, {self.n} ranks, round {self.agreed.round})"

    @property
    def n_steps(self) -> int:
        """The number of steps."""
        return self._updates.n_steps

    @property
    def tile_weights(self) -> Tensor | None:
        """[t, n] weights of the ranks in each tile of the last block (t = 1: one rule); or None."""
        return self._rounds.tile_weights

    @property
    def rejected(self) -> list[int]:
        """The ranks that were left out of every tile of the last round."""
        weights = self.tile_weights
        return [] if weights is None else torch.nonzero((weights == 0).all(0))[:, 0].tolist()

    @property
    def weights(self) -> Tensor | None:
        """[n] weights of the ranks in the last round, averaged over tiles; None before."""
        return None if self.tile_weights is None else self.tile_weights.mean(0)

    @property
    def n_left_out(self) -> list[int]:
        """The number of its own updates that each rank reports to have dropped as garbage."""
        return list(self._rounds.n_left_out)

    @property
    def counts(self) -> Tensor:
        """[n] number of rounds in which each rank was left out, or had little weight.

        Little is less than a quarter of the median rank's mean weight: the geometric median gives
        every row some weight, in inverse proportion to its distance.
        """
        return self.monitor.counts.clone()

    def suspects(self) -> list[Suspect]:
        """The ranks that were left out, or had little weight, in 10 of the last 20 rounds."""
        return self.monitor.suspects()

    @property
    def longest_wait(self) -> int:
        """Rounds for which some tile has not been sent."""
        return int(self.agreed.waits.max())

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent to all others in the last round, without headers."""
        return self._rounds.messages.bytes_sent

    def step(self) -> bool:
        """Make a step, instead of `optimizer.step()`; returns whether it was a round.

        All ranks must call it equally often. If a round fails, the update stays in the memory.
        """
        if not self._updates.step(self.memory):
            return False
        number = self.agreed.round
        self._roll.beat(number)
        with self._roll.naming(number):
            self._rounds.make()
        # The round has happened, whatever the comparison of the parameters finds.
        self._updates.begin()
        means = self.weights
        assert means is not None
        self.monitor.observe(None, have_little_weight(means))
        if self._check_every and self.agreed.round % self._check_every == 0:
            with self._roll.naming(number):
                if self._replicas.check():
                    self._updates.begin()
        return True

    def _settle(self) -> bool:
        """Take the parameters of the majority; returns whether this rank had them."""
        return self.rank not in self._replicas.check()

    def _log_suspect(self, suspect: Suspect) -> None:
        log.warning("%s is suspect: %s", self.members[suspect.row], suspect.reason)

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank: its memory, and the state that all ranks share.

        Between two rounds of local steps it also holds the shared parameters, because those of the
        model differ between ranks.
        """
        shared = self._updates.shared
        return {
            "rank": self.rank,
            "n_ranks": self.n,
            "n_steps": self.n_steps,
            "agreed": self.agreed.state_dict(),
            "outer": self._outer.state_dict(),
            "memory": self.memory.state_dict(),
            "monitor": self.monitor.state_dict(),
            "shared": None if shared is None else shared.clone(),
        }

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Resume, after the model and the optimizer have been loaded; all ranks call it.

        A rank without a state (None), or with the state of another round than most ranks, takes the
        round and the parameters of the majority and begins with an empty memory. More than half of
        all ranks must have the same state, or none of them any. If a rank has none, or the number
        of ranks has changed, the history of rejections is dropped.

        Args:
            state: the state of the same rank, or None.
        """
        if state is not None:
            check_state(state, self)
        if state is not None and state["rank"] != self.rank:
            raise failure("state", f"be that of rank {self.rank}", f"that of rank {state['rank']}")
        present, device = common_tensors(self.state_dict()), self.memory.vector.device
        common = CommonState(present, self._group, self.members, device)
        misfit = None if state is None else self._misfit(state, common)
        # One rank that raised this error alone would leave the others waiting.
        kind = "a state that fits, or None" if misfit is None else "one of other options"
        self._roll.agree("load_state_dict", kind)
        if misfit is not None:
            raise misfit
        with self._roll.naming(self.agreed.round):
            found, fresh = common.settle(None if state is None else common_tensors(state))
            if found is not None:
                self._take(found)
                self.memory.clear()
                self.monitor = Monitor(self.n, on_suspect=self._on_suspect)
            shared = None
            if state is not None and self.rank not in fresh:
                self.memory.load_state_dict(state["memory"])
                describe_forgotten(state, self.n)
                # The monitor must be the same on all ranks, and has no digest of its own.
                if state["n_ranks"] == self.n and not fresh:
                    self.monitor.load_state_dict(state["monitor"])
                shared = state["shared"]
            self._updates.resume(shared, self._settle)

    def _misfit(self, state: dict[str, Any], common: CommonState) -> ValueError | None:
        """The error of a state of another model, or of other options."""
        try:
            common.check(common_tensors(state))
            self.memory.check_state(state["memory"])
        except ValueError as error:
            return error
        return None

    def _take(self, common: dict[str, Tensor]) -> None:
        """Take the state that all ranks have in common."""
        self._updates.n_steps, number = common["numbers"].tolist()
        self.agreed.load_state_dict({"round": number} | common)
        self._outer.load_state_dict({"velocity": common.get("velocity")})
