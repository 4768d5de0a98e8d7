"""Attacks that need the updates of others, applied where the server receives the replies.

Clients of Flower do not see each other's updates, and real attackers would have to guess or steal
them. The strongest attacks of the literature assume that they know them all. They are therefore
made here, in front of the strategy and out of its sight.
"""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from holdfast.seeds import stream
from holdfast.threats import Attack

from .settings import Settings
from .task import from_vector, to_vector


class AttackAtTheDoor(Strategy):
    """Another strategy, which gets replies of which those of bad clients were replaced.

    Args:
        strategy: the strategy that gets the replies.
        attack: what bad clients send.
        settings: those of the run, which say who is bad; the attackers know its rule.
    """

    def __init__(self, strategy: Strategy, attack: Attack, settings: Settings) -> None:
        self.strategy, self._attack, self._settings = strategy, attack, settings
        self._model = ArrayRecord()
        self._state: torch.Tensor | None = None

    def summary(self) -> None:
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._model = arrays
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        self._lie(server_round, [reply for reply in replies if reply.has_content()])
        return self.strategy.aggregate_train(server_round, replies)

    def _lie(self, server_round: int, replies: list[Message]) -> None:
        """Overwrite the arrays of bad clients."""
        if not replies:
            return
        clients = [
            int(reply.content.metric_records["metrics"]["partition-id"])  # type: ignore[arg-type]
            for reply in replies
        ]
        mask = self._settings.bad_clients(server_round)[clients]
        if bool(mask.all()):  # no honest reply to start from
            return
        records = [reply.content.array_records["arrays"] for reply in replies]
        start = to_vector(self._model)
        rows = torch.stack([to_vector(record) - start for record in records])
        self._state = self._attack.overwrite(
            rows,
            mask,
            state=self._state,
            rule=self._settings.rule or "mean",
            generator=stream(self._settings.seed, "attack", server_round),
            step=server_round - 1,
        )
        for i in mask.nonzero()[:, 0].tolist():
            sent = from_vector(start + rows[i], like=records[i])
            replies[i].content["arrays"] = sent
