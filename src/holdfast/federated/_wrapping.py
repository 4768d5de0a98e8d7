"""The base of strategies that apply a rule before the server step of another strategy."""

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from holdfast.aggregators import Aggregator, as_rule
from holdfast.checks import failure
from holdfast.federated._clients import Clients, Decision, RoundReport
from holdfast.federated._model_arrays import ModelArrays, numbers_of
from holdfast.federated._replies import (
    Sorted,
    asked_of,
    capped_weights,
    median_metrics,
    sort_replies,
)
from holdfast.federated._wrappable import check_options, check_wrappable
from holdfast.monitor import Suspect
from holdfast.seeds import stream

T = TypeVar("T")

log, flower_log = logging.getLogger("holdfast"), logging.getLogger("flwr")


@dataclass(eq=False)
class _Round:
    """The round that is under way."""

    model: ModelArrays
    arrays: ArrayRecord
    asked: dict[int, str]


class WrappingStrategy(Strategy, Generic[T]):
    """Replaces the aggregation of another strategy, which keeps sampling and its server step.

    The wrapped strategy gets one reply instead of all: the model after the rule's update, and the
    median metrics. FedAvg takes it as the new model; FedAvgM, FedAdam and others apply their step
    to it. The momentum of the server therefore never contains a rejected update.

    Args: see :class:`~holdfast.federated.RobustStrategy`.
    """

    def __init__(
        self,
        strategy: Strategy,
        rule: Aggregator | str = "radius-filter",
        *,
        max_weight: float = 3.0,
        window: int = 200,
        on_round: Callable[[RoundReport], None] | None = None,
        on_suspect: Callable[[Suspect], None] | None = None,
    ) -> None:
        check_wrappable(strategy)
        if isinstance(strategy, WrappingStrategy):
            raise failure("strategy", "be one of Flower's", type(strategy).__name__)
        self.strategy, self.rule = strategy, as_rule(rule)
        check_options(self.rule, max_weight, on_round)
        self.max_weight = max_weight
        self.report: RoundReport | None = None
        self._on_round = on_round
        self._apart: tuple[str, ...] = ()
        self._clients = Clients(window, on_suspect or _log_suspect)
        self._round: _Round | None = None
        self._asked_to_evaluate: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.strategy).__name__}, {self.rule})"

    @abstractmethod
    def _instruct(self, server_round: int, model: ModelArrays, messages: list[Message]) -> None:
        """Add the instructions for clients to the messages of a round."""

    @abstractmethod
    def _read(self, model: ModelArrays, record: ArrayRecord) -> T:
        """The content of a reply's arrays; a ValueError states why they cannot be used."""

    @abstractmethod
    def _decide(self, server_round: int, model: ModelArrays, found: Sorted[T]) -> Decision:
        """Apply the rule; a ValueError states why the model cannot change."""

    @property
    def rejected(self) -> list[int]:
        """The nodes that the rule left out in the last round."""
        return [] if self.report is None else list(self.report.rejected)

    @property
    def weights(self) -> dict[int, float]:
        """The weight of each node in the result of the last round; empty if there was none."""
        return {} if self.report is None else dict(self.report.weights)

    @property
    def dropped(self) -> dict[int, str]:
        """Why replies of the last round were not used, by node."""
        return {} if self.report is None else dict(self.report.dropped)

    @property
    def counts(self) -> dict[int, int]:
        """Rounds in which each node was rejected, had little weight, or sent garbage."""
        return self._clients.counts

    def suspects(self) -> list[Suspect]:
        """The clients that are probably faulty; `row` is the id of the node."""
        return self._clients.suspects()

    def summary(self) -> None:
        flower_log.info("\t├──> Holdfast settings:")
        flower_log.info("\t│\t├── Rule: %s", self.rule)
        claims = (
            f"at most {self.max_weight:g} times the median" if self._weighs else "not used by it"
        )
        flower_log.info("\t│\t├── Claimed numbers of examples: %s", claims)
        flower_log.info("\t│\t└── Wrapped strategy: %s", type(self.strategy).__name__)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        model = ModelArrays(arrays, apart=self._apart)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._round = _Round(model, arrays, asked_of(messages, server_round))
        self._instruct(server_round, model, messages)
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        self._asked_to_evaluate = asked_of(messages, server_round)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        this = self._round
        if this is None:
            raise failure("aggregate_train", "be called after configure_train", "no model")
        started, model = time.perf_counter(), this.model

        def read(record: ArrayRecord | None) -> T:
            if record is None:
                raise ValueError("has no record of arrays")
            return self._read(model, record)

        found = sort_replies(replies, this.asked, read, weighted_by=self._weighted_by)
        decision, reason = None, ""
        try:
            self._check_enough(found)
            decision = self._decide(server_round, model, found)
        except ValueError as error:
            reason = str(error)
            log.warning("round %d: the model is unchanged: %s", server_round, reason)
        self._note(server_round, found, decision, reason, started)
        arrays, metrics = this.arrays, MetricRecord()
        if decision is not None:
            arrays, metrics = self._step(server_round, this, found, decision)
        assert self.report is not None
        for name, value in self.report.metrics().items():
            metrics[name] = value
        self._round = None  # the model's memory
        return arrays, metrics

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        found = sort_replies(
            replies, self._asked_to_evaluate, lambda _: None, weighted_by=self._weighted_by
        )
        if not found.good:
            return None
        if not found.is_majority:
            text = "round %d: no evaluation: %d of %d clients sent a good reply, not a majority"
            log.warning(text, server_round, len(found.good), found.n_asked)
            return None
        reply = self._one_reply(found, MessageType.EVALUATE, {})
        return self.strategy.aggregate_evaluate(server_round, [reply])

    @property
    def _weighted_by(self) -> str:
        return getattr(self.strategy, "weighted_by_key", "num-examples")

    @property
    def _weighs(self) -> bool:
        return "row_weights" in self.rule.takes

    def _check_enough(self, found: Sorted[T]) -> None:
        """Check for a majority of good replies, and for as many as the rule needs."""
        n_good = len(found.good)
        if not found.is_majority:
            heard = f"{n_good} of {found.n_asked} clients sent a good reply"
            raise ValueError(f"{heard}, not a majority")
        if n_good < self.rule.n_needed:
            raise ValueError(f"{self.rule} needs {self.rule.n_needed} good replies, got {n_good}")

    def _arguments(self, server_round: int, found: Sorted[T]) -> dict[str, Any]:
        """The keyword arguments of the rule."""
        arguments: dict[str, Any] = {}
        if self._weighs:
            arguments["row_weights"] = self._shares(found)
        if "generator" in self.rule.takes:
            arguments["generator"] = stream(0, "federated rule", server_round)
        return arguments

    def _shares(self, found: Sorted[T]) -> Tensor:
        """[n] weights of the good replies by their claims."""
        return capped_weights([reply.claim for reply in found.good.values()], self.max_weight)

    def _note(
        self,
        server_round: int,
        found: Sorted[T],
        decision: Decision | None,
        reason: str,
        started: float,
    ) -> None:
        """Report the round, and watch the clients."""
        nodes, faulty = list(found.good), sorted(found.faulty)
        weights: dict[int, float] = {}
        rejected: list[int] = []
        if decision is None:
            self._clients.observe_faulty(faulty)
        else:
            if self.rule.has_too_few(len(nodes)):
                text = "round %d: of %d replies, %s resists no bad one: ask more clients"
                log.warning(text, server_round, len(nodes), self.rule)
            weights = dict(zip(nodes, decision.weights.tolist(), strict=True))
            rejected = [nodes[i] for i in torch.nonzero(decision.result.rejected)[:, 0].tolist()]
            shares = self._shares(found) if self._weighs else None
            self._clients.observe(nodes, decision, shares, faulty)
        if found.dropped:
            log.warning("round %d: dropped replies: %s", server_round, found.reasons)
        assert self._round is not None
        self.report = RoundReport(
            round=server_round,
            n_asked=len(self._round.asked),
            weights=weights,
            rejected=tuple(rejected),
            dropped=dict(found.dropped),
            n_bytes={node: reply.n_bytes for node, reply in found.good.items()},
            reason=reason,
            seconds=time.perf_counter() - started,
        )
        if self._on_round is not None:
            self._on_round(self.report)

    def _step(
        self, server_round: int, this: _Round, found: Sorted[T], decision: Decision
    ) -> tuple[ArrayRecord, MetricRecord]:
        """The server step of the wrapped strategy, from the rule's model."""
        model = this.model
        key = getattr(self.strategy, "arrayrecord_key", "arrays")
        records = {key: model.moved(decision.update, decision.voted)}
        reply = self._one_reply(found, MessageType.TRAIN, records)
        arrays, metrics = self.strategy.aggregate_train(server_round, [reply])
        if arrays is None:
            return this.arrays, MetricRecord() if metrics is None else metrics
        for name in set(arrays) & set(model.values):
            dtype = model.values[name].dtype
            if dtype.kind != "f":  # no server step may be applied to counters
                arrays[name] = records[key][name]
            elif numbers_of(arrays[name]).dtype != dtype:
                arrays[name] = Array(numbers_of(arrays[name]).astype(dtype))
        return arrays, MetricRecord() if metrics is None else metrics

    def _one_reply(
        self, found: Sorted[Any], message_type: str, records: Mapping[str, ArrayRecord]
    ) -> Message:
        """The one reply that the wrapped strategy gets."""
        replies = list(found.good.values())
        medians = median_metrics([reply.metrics for reply in replies], self._shares(found))
        metrics = MetricRecord({self._weighted_by: 1.0, **medians})
        instruction = Message(
            RecordDict(), dst_node_id=next(iter(found.good)), message_type=message_type
        )
        content = RecordDict({**records, "metrics": metrics})
        return Message(content, reply_to=instruction)


def _log_suspect(suspect: Suspect) -> None:
    log.warning("node %d is suspect: %s", suspect.row, suspect.reason)
