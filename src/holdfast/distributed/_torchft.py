"""A rule instead of torchft's all-reduce, over replicas that join and leave."""

import logging
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions
from torch.distributed import ReduceOp

from holdfast.aggregators import Aggregate, Aggregator, as_rule
from holdfast.checks import failure
from holdfast.geometry import DenseRows

log = logging.getLogger("holdfast")


@final
class RobustManager:
    """A `torchft.Manager` whose `allreduce` applies a rule to the replicas that take part.

    Pass it to torchft instead of the manager: `torchft.DistributedDataParallel(robust, model)` and
    `torchft.Optimizer(robust, optimizer)`. The manager still does everything else: the quorum,
    recovery, and the decision whether a step counts.

    A replica that belongs to the quorum without participating (because it is recovering or a spare)
    sends zeros to torchft's all-reduce, which a rule would take for a row. Here every replica
    states whether it participates, and the rule gets only the rows of participating replicas. Every
    replica receives all rows and decides on its own, so each receives n times the traffic of one
    row.

    The rule is applied to each tensor separately: to a bucket of DistributedDataParallel, or to a
    shard if a replica has several ranks. If fewer replicas participate than the rule needs, or most
    rows are not finite, torchft discards the step, as after any other error; the manager's
    `min_replica_size` should be at least `rule.n_needed`.

    Args:
        manager: the manager.
        pg: the process group that the manager was made with.
        rule: a rule that needs only rows, or its name.

    Attributes:
        rejected: the replicas, by their ranks in the quorum, that took part in the last step and
            were left out of one of its tensors.
    """

    def __init__(self, manager: Any, pg: Any, rule: Aggregator | str = "radius-filter") -> None:
        self._manager, self._pg, self.rule = manager, pg, as_rule(rule)
        for owner, name, method in (("manager", manager, "allreduce"), ("pg", pg, "allgather")):
            if not callable(getattr(name, method, None)):
                raise failure(owner, f"be torchft's, with `{method}`", type(name).__name__)
        if self.rule.needs:
            needed = " and ".join(sorted(self.rule.needs))
            raise failure("rule", "need nothing but rows", f"{self.rule}, which needs {needed}")
        self._step, self._rejected = -1, torch.zeros(0, dtype=torch.bool)

    def __getattr__(self, name: str) -> Any:
        if name == "_manager":  # before __init__, for example while unpickling
            raise AttributeError(name)
        return getattr(self._manager, name)

    @property
    def rejected(self) -> list[int]:
        """See the attributes of the class."""
        found: list[int] = torch.nonzero(self._rejected)[:, 0].tolist()
        return found

    def allreduce(
        self,
        tensor: Tensor,
        should_quantize: bool = False,
        reduce_op: ReduceOp.RedOpType = ReduceOp.AVG,
    ) -> "DoneWork":
        """Replace the tensor by the aggregate over the replicas; see `torchft.Manager.allreduce`.

        Args:
            tensor: this replica's values, of a floating dtype.
            should_quantize: must be False.
            reduce_op: AVG, or SUM for the aggregate times the number of replicas that take part.
        """
        if should_quantize:
            raise failure("should_quantize", "be False with a rule, which reads exact rows", True)
        if reduce_op not in (ReduceOp.AVG, ReduceOp.SUM):
            raise failure("reduce_op", "be AVG or SUM with a rule", reduce_op)
        if not tensor.is_floating_point():
            raise failure("tensor", "have a floating dtype", tensor.dtype)
        if self._manager.errored() is None:
            self._manager.wait_quorum()
            try:
                self._reduce(tensor, reduce_op)
            except Exception as error:  # of any kind: torchft discards the step
                log.warning("step %d is discarded: %s", self._manager.current_step(), error)
                self._manager.report_error(error)
        return DoneWork(tensor)

    @torch.no_grad()
    def _reduce(self, tensor: Tensor, reduce_op: ReduceOp.RedOpType) -> None:
        rows, present = self._gathered(tensor)
        used = torch.nonzero(present)[:, 0]
        aggregate: Aggregate = self.rule.aggregate(DenseRows(rows[used.to(rows.device)]))
        self._note(aggregate.for_all(used, len(rows)).rejected & present)
        vector = aggregate.vector if reduce_op == ReduceOp.AVG else aggregate.vector * len(used)
        tensor.copy_(vector.view_as(tensor))

    def _gathered(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d] the rows of the whole quorum, and bool [n], which of them take part."""
        flag = tensor.new_full((1,), float(self._manager.is_participating()))
        own = torch.cat([tensor.flatten(), flag])
        found = [torch.empty_like(own) for _ in range(self._pg.size())]
        self._pg.allgather([found], [own], AllgatherOptions()).wait()
        whole = torch.stack(found)
        return whole[:, :-1], (whole[:, -1] == 1).cpu()

    def _note(self, rejected: Tensor) -> None:
        """Remember who was left out, over all tensors of a step."""
        step = self._manager.current_step()
        if step != self._step or len(rejected) != len(self._rejected):
            self._step, self._rejected = step, torch.zeros_like(rejected)
        self._rejected = self._rejected | rejected


@final
class DoneWork(dist.Work):
    """A collective that has ended, with the future that torchft's classes look for."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        future: Any = torch.futures.Future()
        future.set_result(tensor)
        # The hook of torchft's DistributedDataParallel returns this attribute of the future.
        vars(future)["_fut"] = future
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True at once: the collective has ended."""
        return True

    def get_future(self) -> Any:
        """The future, which holds the tensor."""
        return self._future
