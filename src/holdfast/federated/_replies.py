"""Checks of the clients' replies: each is checked separately and dropped with a reason if wrong."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from torch import Tensor

T = TypeVar("T")

MINORITY = 0.499
"""The share of the weight that a minority of clients may have: less than half, up to rounding."""

SECURE = "secaggplus"
"""Begins the names of the records of Flower's secure aggregation."""


@dataclass(frozen=True, eq=False)
class Reply(Generic[T]):
    """A reply that is well formed.

    Attributes:
        arrays: the content of its arrays.
        claim: the number of examples that the client claims to have used.
        metrics: its other metrics, each as a list of finite numbers.
        n_bytes: bytes of its arrays.
    """

    arrays: T
    claim: float
    metrics: dict[str, list[float]]
    n_bytes: int


@dataclass(frozen=True, eq=False)
class Sorted(Generic[T]):
    """The replies of one round.

    Attributes:
        good: those that can be used, by the id of the node.
        dropped: why the others cannot.
        faulty: nodes that were asked and sent a malformed reply; nodes without a reply are not.
        n_asked: the number of nodes that were asked.
    """

    n_asked: int
    good: dict[int, Reply[T]] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    faulty: set[int] = field(default_factory=set)

    @property
    def is_majority(self) -> bool:
        """Whether most of those that were asked sent a good reply.

        A majority of the replies is not enough: an attacker that is the only one to reply, or that
        keeps others from replying, would control the round.
        """
        return 2 * len(self.good) > self.n_asked

    @property
    def reasons(self) -> str:
        """Why replies were dropped, in one line."""
        return "; ".join(f"{node}: {why}" for node, why in self.dropped.items())

    def drop(self, node: int, reason: str) -> None:
        """Drop a reply whose content is wrong."""
        self.good.pop(node, None)
        self.faulty.add(node)
        self.dropped[node] = reason


def asked_of(messages: Iterable[Message], server_round: int) -> dict[int, str]:
    """The group id of each message, by the node that it goes to; one without gets the round's."""
    asked = {}
    for message in messages:
        if not message.metadata.group_id:
            message.metadata.group_id = str(server_round)
        asked[message.metadata.dst_node_id] = message.metadata.group_id
    return asked


def sort_replies(
    replies: Iterable[Message],
    asked: Mapping[int, str],
    read: Callable[[ArrayRecord | None], T],
    *,
    weighted_by: str,
) -> Sorted[T]:
    """Check every reply separately.

    Args:
        replies: what arrived.
        asked: the group ids of the messages that were sent, by node.
        read: reads the arrays of a reply. Its ValueError is the reason to drop the reply. The
            record is emptied afterwards to free its memory.
        weighted_by: the metric that holds the number of examples.
    """
    found: Sorted[T] = Sorted(len(asked))
    for message in replies:
        node = message.metadata.src_node_id
        if node in found.good or node in found.faulty:
            found.dropped[node] = "replied twice"  # the first reply counts
        elif node not in asked:
            found.dropped[node] = "was not asked"
        elif message.has_error():
            found.dropped[node] = f"failed: {message.error.reason}"
        elif message.metadata.group_id != asked[node]:
            found.dropped[node] = f"replied to round {message.metadata.group_id!r}"
        else:
            # Whatever bytes a client sends, and whatever NumPy makes of them, is a reason to drop
            # the reply, and never one to end the run.
            try:
                found.good[node] = _checked(message.content, read, weighted_by)
            except Exception as error:
                found.drop(node, str(error) or type(error).__name__)
    for node in asked:
        if node not in found.good and node not in found.dropped:
            found.dropped[node] = "did not reply"
    # In the order of a round of the exchange: the result does not depend on who was first.
    ordered = {node: found.good[node] for node in sorted(found.good)}
    return Sorted(len(asked), ordered, found.dropped, found.faulty)


def _checked(
    content: RecordDict, read: Callable[[ArrayRecord | None], T], weighted_by: str
) -> Reply[T]:
    """The reply with this content."""
    if any(str(name).startswith(SECURE) for name in content):
        raise ValueError(
            "uses secure aggregation (SecAgg, SecAgg+), which hides the updates of single clients"
        )
    arrays = [record for record in content.values() if isinstance(record, ArrayRecord)]
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if len(metrics) != 1 or len(arrays) > 1:
        raise ValueError(f"has {len(arrays)} records of arrays and {len(metrics)} of metrics")
    if weighted_by not in metrics[0]:
        raise ValueError(f"has no {weighted_by!r}")
    claim = metrics[0][weighted_by]
    if isinstance(claim, list) or not 0 < float(claim) < math.inf:
        raise ValueError(f"has {weighted_by!r} {claim}, which is not a number above 0")
    n_bytes = sum(len(array.data) for record in arrays for array in record.values())
    found = read(arrays[0] if arrays else None)
    for record in arrays:
        record.clear()
    others = {name: value for name, value in metrics[0].items() if name != weighted_by}
    return Reply(found, float(claim), _finite(others), n_bytes)


def _finite(metrics: Mapping[str, Any]) -> dict[str, list[float]]:
    """The metrics that are finite numbers, or lists of them, all as lists."""
    lists = {
        name: [float(one) for one in (value if isinstance(value, list) else [value])]
        for name, value in metrics.items()
    }
    return {name: values for name, values in lists.items() if all(map(math.isfinite, values))}


def capped_weights(claims: Sequence[float], max_weight: float) -> Tensor:
    """[n] weights from the numbers of examples that clients claim.

    Claims are lowered to at most `max_weight` times their median. Then the largest are lowered to a
    common limit, until no minority of clients has half of the weight: a rule that resists half of
    the weight resists any minority of clients, whatever it claims. Smaller claims stay in
    proportion.
    """
    n = len(claims)
    ordered = sorted(claims)
    limit = max_weight * ordered[(n - 1) // 2]
    weights = torch.tensor(ordered, dtype=torch.float64).clamp(max=limit)
    first = n - (n - 1) // 2  # of the largest minority

    def is_fair(limit: float) -> bool:
        capped = weights.clamp(max=limit)
        return bool(capped[first:].sum() <= MINORITY * capped.sum())

    # The share of the largest grows with the limit, from that of equal weights.
    low, high = ordered[0], limit
    if is_fair(high):
        low = high
    for _ in range(60 if low < high else 0):
        half = (low + high) / 2
        low, high = (half, high) if is_fair(half) else (low, half)
    return torch.tensor(claims, dtype=torch.float64).clamp(max=low)


def median_metrics(
    metrics: Sequence[Mapping[str, Sequence[float]]], weights: Tensor
) -> dict[str, float | list[float]]:
    """The weighted median of every metric that most clients have, each in its usual length.

    A minority of the weight cannot move a median beyond the largest and smallest honest value.
    """
    medians: dict[str, float | list[float]] = {}
    names = sorted({name for one in metrics for name in one})
    for name in names:
        length = sorted(len(one[name]) for one in metrics if name in one)
        usual = length[(len(length) - 1) // 2]
        have = [i for i, one in enumerate(metrics) if len(one.get(name, ())) == usual]
        if 2 * len(have) <= len(metrics) or usual == 0:
            continue
        values = torch.tensor([metrics[i][name] for i in have], dtype=torch.float64)
        ordered, places = values.sort(dim=0)
        sums = weights[have][places].cumsum(0)
        at = (2 * sums >= sums[-1]).int().argmax(0)
        chosen = ordered.gather(0, at[None])[0].tolist()
        medians[name] = chosen if usual > 1 else chosen[0]
    return medians
