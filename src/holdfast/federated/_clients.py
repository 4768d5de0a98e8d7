"""The clients over time, and the report of one round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate
from holdfast.federated._model_arrays import Numbers
from holdfast.monitor import Monitor, Suspect, have_little_weight


@final
@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What happened in one round of training.

    Attributes:
        round: its number.
        n_asked: number of clients that were sent a message.
        weights: the weight of every good reply in the result, by node; empty without a result.
        rejected: the nodes whose replies the rule left out.
        dropped: why other replies were not used, by node.
        n_bytes: bytes of the arrays of every good reply, by node.
        reason: why the model did not change; empty if it did.
        seconds: time that the server took for the replies.
    """

    round: int
    n_asked: int
    weights: dict[int, float]
    rejected: tuple[int, ...]
    dropped: dict[int, str]
    n_bytes: dict[int, int]
    reason: str
    seconds: float

    def metrics(self) -> dict[str, int | float | list[int] | list[float]]:
        """The report as metrics for Flower; nodes and weights have the same order."""
        nodes = list(self.n_bytes)
        return {
            "holdfast-asked": self.n_asked,
            "holdfast-good": len(nodes),
            "holdfast-dropped": len(self.dropped),
            "holdfast-rejected": len(self.rejected),
            "holdfast-model-changed": int(not self.reason),
            "holdfast-uplink-bytes": sum(self.n_bytes.values()),
            "holdfast-seconds": self.seconds,
            "holdfast-nodes": nodes,
            "holdfast-weights": [self.weights.get(node, 0.0) for node in nodes],
            "holdfast-bytes": list(self.n_bytes.values()),
            "holdfast-rejected-nodes": list(self.rejected),
            "holdfast-dropped-nodes": list(self.dropped),
        }


@dataclass(frozen=True, eq=False)
class Decision:
    """What the rule has decided.

    Attributes:
        result: the aggregate of the replies, in the order of the good ones.
        update: [d] what is added to the model.
        voted: new values of the arrays that stand apart.
        products: [n, n] inner products of the updates; NaN if they cannot be compared.
    """

    result: Aggregate
    update: Tensor
    voted: dict[str, Numbers]
    products: Tensor

    @property
    def weights(self) -> Tensor:
        """[n] the weights of the rows: means over tiles, or equal ones for rules by columns."""
        if self.result.weights is not None:
            return self.result.weights
        if self.result.tile_weights is not None:
            return self.result.tile_weights.mean(0)
        return (~self.result.rejected).double() / (~self.result.rejected).sum()


@final
class Clients:
    """Watches clients that come and go, by the ids of their nodes.

    Args:
        window: that of :class:`~holdfast.monitor.Monitor`.
        on_suspect: called with a client that becomes suspect; its `row` is the id of the node.
    """

    def __init__(self, window: int, on_suspect: Callable[[Suspect], None] | None) -> None:
        self._monitor = Monitor(1, window=window, on_suspect=self._name(on_suspect))
        self._rows: dict[int, int] = {}
        self._nodes: list[int] = []

    def _name(
        self, on_suspect: Callable[[Suspect], None] | None
    ) -> Callable[[Suspect], None] | None:
        if not callable(on_suspect):  # the monitor refuses what is no function
            return on_suspect
        return lambda suspect: on_suspect(self._named(suspect))

    def _named(self, suspect: Suspect) -> Suspect:
        return Suspect(self._nodes[suspect.row], suspect.reason)

    @property
    def counts(self) -> dict[int, int]:
        """Rounds in which each client was rejected, had little weight, or sent garbage."""
        counts: list[int] = self._monitor.counts.tolist()
        return {node: counts[row] for node, row in self._rows.items()}

    def suspects(self) -> list[Suspect]:
        """The clients that are suspect now; see :class:`~holdfast.monitor.Monitor`."""
        return [self._named(suspect) for suspect in self._monitor.suspects()]

    def observe(
        self, nodes: Sequence[int], decision: Decision, shares: Tensor | None, faulty: Sequence[int]
    ) -> None:
        """Take in one round.

        Args:
            nodes: those with a good reply.
            decision: what the rule has made of these.
            shares: [n] the weights that they would have had by their claims; None if equal.
            faulty: those with a reply that is malformed or not finite.
        """
        # Beside its claim: a small site is not left out.
        fair = decision.weights if shares is None else decision.weights / shares
        is_out = decision.result.rejected | (have_little_weight(fair))
        n, m = len(nodes), len(nodes) + len(faulty)
        products = torch.full((m, m), torch.nan, dtype=torch.float64)
        products[:n, :n] = decision.products
        rejected = torch.cat([is_out, torch.ones(m - n, dtype=torch.bool)])
        self._monitor.observe(products, rejected, rows=self._numbers([*nodes, *faulty]))

    def observe_faulty(self, faulty: Sequence[int]) -> None:
        """Take in a round without a decision."""
        rejected = torch.ones(len(faulty), dtype=torch.bool)
        if faulty:
            self._monitor.observe(None, rejected, rows=self._numbers(faulty))

    def _numbers(self, nodes: Sequence[int]) -> list[int]:
        """The rows of these nodes; those that are new get one."""
        for node in nodes:
            if node not in self._rows:
                self._rows[node] = len(self._nodes)
                self._nodes.append(node)
        if len(self._nodes) > self._monitor.n:
            self._monitor.grow(len(self._nodes))
        return [self._rows[node] for node in nodes]
