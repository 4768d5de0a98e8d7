"""A rule instead of the all-reduce, and the history of the ranks."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator, CallArguments
from holdfast.checks import check_count, check_state, failure
from holdfast.distributed._modes import Mode
from holdfast.distributed._roll_call import Member, RollCall
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import DenseRows
from holdfast.monitor import Monitor, Suspect
from holdfast.seeds import stream

log = logging.getLogger("holdfast")


@final
class Guard:
    """The rule that reduces the gradients of all ranks, and the record of who was left out.

    Created by :func:`guard`. Its values are bitwise equal on all ranks.

    Attributes:
        rule: the rule.
        members: the ranks (or nodes) with their hosts and devices; row i is `members[i]`.
        monitor: the monitor of the rows.
        n_steps: number of steps that were reduced.
    """

    def __init__(
        self,
        rule: Aggregator,
        mode: Mode,
        roll: RollCall,
        members: Sequence[Member],
        *,
        window: int,
        on_suspect: Callable[[Suspect], None] | None,
    ) -> None:
        self.rule, self.mode, self.roll, self.members = rule, mode, roll, tuple(members)
        self.monitor = Monitor(mode.n, window=window, on_suspect=on_suspect or self._log_suspect)
        self.n_steps = 0
        self._excluded: set[int] = set()
        self._generator = stream(0, "guard")  # the same draws on every rank
        self._units: list[_Unit] = []  # of the step that is not ended yet
        self._last: list[_Unit] = []

    def __repr__(self) -> str:
        return f"Guard({self.rule}, {self.mode.n} rows, {type(self.mode).__name__.lower()})"

    @property
    def rejected(self) -> list[int]:
        """The rows that were left out of the last step, in any unit."""
        masks = [unit.rejected for unit in self._last]
        return [] if not masks else torch.nonzero(torch.stack(masks).any(0))[:, 0].tolist()

    @property
    def weights(self) -> Tensor | None:
        """[n] weights of the rows in the last step, mean over units; None if a unit has none."""
        weights = [unit.weights for unit in self._last]
        if not weights or any(one is None for one in weights):
            return None
        sizes = torch.tensor([unit.d for unit in self._last], dtype=torch.float64)
        return torch.stack([one for one in weights if one is not None]).T @ (sizes / sizes.sum())

    @property
    def counts(self) -> Tensor:
        """[n] number of steps in which each row was left out."""
        return self.monitor.counts.clone()

    def suspects(self) -> list[Suspect]:
        """The rows that are probably faulty; see :class:`~holdfast.monitor.Monitor`."""
        return self.monitor.suspects()

    @property
    def excluded(self) -> list[int]:
        """The rows that were excluded permanently."""
        return sorted(self._excluded)

    def exclude(self, row: int) -> None:
        """Leave a row out of all further steps.

        Every rank must call it, between the same steps; it waits for the others.
        """
        check_count("row", row)
        if row >= self.mode.n:
            raise failure("row", f"be one of {self.mode.n} rows", row)
        n_left = self.mode.n - len(self._excluded | {row})
        if n_left < self.rule.n_needed:
            raise failure("row", f"leave the {self.rule.n_needed} rows of {self.rule}", n_left)
        self.roll.agree("exclude", f"row {row} before step {self.n_steps}")
        self._excluded.add(row)

    def begin_step(self) -> None:
        """Forget the units of a step that was not ended, and tell that this rank has come."""
        self._units = []
        self.roll.beat(self.n_steps)

    def reduce(self, tensors: Sequence[Tensor], *, size: int, zero_is_absent: bool) -> Tensor:
        """The aggregate [c] of rows [n, c], given as one tensor or several, for one unit.

        Args:
            tensors: this rank's columns of all rows.
            size: number of entries of the vectors that each rank has sent.
            zero_is_absent: whether a row of zeros belongs to a rank that has no gradient, and is
                left out. In a unit of a model zeros may be a gradient.
        """
        d = self.mode.n_columns(size)
        rows = DenseRows(tensors, holders=self.mode.holders, n_columns=d)
        used = torch.tensor([i for i in range(rows.n) if i not in self._excluded])
        try:
            aggregate = self._aggregate(rows, used)
            products = (aggregate.gram or rows.gram()).for_all(rows.n)
            present = used[products.diagonal()[used] != 0]
            # With fewer rows than the rule needs, zeros count as rows: the result stays bounded.
            n_least = max(1, self.rule.n_needed)
            if zero_is_absent and n_least <= len(present) < len(used):
                aggregate = self._aggregate(rows, present)
        except NonFiniteRowsError as error:
            # As without a guard, the gradient is not finite: a gradient scaler skips the step.
            log.warning("step %d: %s", self.n_steps, error)
            lost = torch.full((rows.n, rows.n), torch.nan, dtype=torch.float64)
            self._units.append(_Unit(d, None, torch.ones(rows.n, dtype=torch.bool), lost))
            return torch.full((rows.d,), torch.inf, dtype=rows.dtype, device=rows.device)
        self._units.append(_Unit(d, aggregate.weights, aggregate.rejected, products))
        return aggregate.vector

    def reduce_vector(self, vector: Tensor, *, zero_is_absent: bool) -> Tensor:
        """The aggregate [m] of the vectors [m] of all ranks, sent and gathered."""
        sent = self.mode.send(vector)
        columns = self.reduce([sent.wait()], size=sent.size, zero_is_absent=zero_is_absent)
        return self.mode.whole(columns, sent)

    def _aggregate(self, rows: DenseRows, used: Tensor) -> Aggregate:
        """The aggregate of the rows at `used`, in terms of all rows."""
        needed: CallArguments = (
            {"generator": self._generator} if "generator" in self.rule.needs else {}
        )
        if len(used) == rows.n:
            return self.rule.aggregate(rows, **needed)
        return self.rule.aggregate(rows.keep(used), **needed).for_all(used, rows.n)

    def end_step(self) -> None:
        """Take the units that were reduced since the step began as one step, if there are any.

        All collectives of the step must be over: `on_suspect` may raise an error on one rank.
        """
        if not self._units:
            return
        self._last, self._units = self._units, []
        self.n_steps += 1
        rejected = torch.stack([unit.rejected for unit in self._last]).any(0)
        rejected[self.excluded] = False  # nobody watches them any more
        # The Gram matrix of whole rows is the sum over their units.
        products = torch.stack([unit.products for unit in self._last]).sum(0)
        self.monitor.observe(products, rejected)

    def _log_suspect(self, suspect: Suspect) -> None:
        log.warning("%s is suspect: %s", self.members[suspect.row], suspect.reason)

    def state_dict(self) -> dict[str, Any]:
        """The state to resume from, the same on every rank."""
        return {
            "n_steps": self.n_steps,
            "excluded": self.excluded,
            "generator": self._generator.get_state(),
            "monitor": self.monitor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`; with another number of rows the history of the rows is dropped.

        Every rank must call it with the same state; it waits for the others.
        """
        check_state(state, self)
        generator = bytes(state["generator"].tolist())
        digest = hashlib.sha256(generator + repr(state["excluded"]).encode()).hexdigest()
        self.roll.agree("load_state_dict", f"step {state['n_steps']} ({digest[:8]})")
        if len(state["monitor"]["counts"]) == self.mode.n:
            self.monitor.load_state_dict(state["monitor"])  # may refuse, before anything changes
            self._excluded = set(state["excluded"])
        self.n_steps = state["n_steps"]
        self._generator.set_state(state["generator"])


class _Unit:
    """What was decided for one unit of the model, or for the whole of it."""

    def __init__(self, d: int, weights: Tensor | None, rejected: Tensor, products: Tensor) -> None:
        self.d, self.weights, self.rejected, self.products = d, weights, rejected, products
