from typing import final

import torch
from flwr.app import ArrayRecord, Message

from holdfast.federated._clients import Decision
from holdfast.federated._model_arrays import ModelArrays, Numbers
from holdfast.federated._replies import Sorted
from holdfast.federated._wrapping import WrappingStrategy


@final
class RobustStrategy(WrappingStrategy[dict[str, Numbers]]):
    """Any Flower strategy, with a rule instead of the average.

        strategy = RobustStrategy(FedAvg(fraction_train=0.5))

    The rows are the clients' *updates*, their models minus the global one. The rule turns them into
    one update, and the wrapped strategy gets the resulting model as the only reply. It samples
    clients and applies its own server step as before. Integer arrays and arrays without dimensions
    are combined by the coordinate median, in their own dtype.

    Every reply is checked separately and dropped with a reason if it is an error, is malformed
    (other arrays, shapes or kinds of numbers, no positive number of examples), is not finite,
    belongs to another round, is a second reply, or comes from a node that was not asked. A bad
    reply never ends the run. If most of the replies with content are malformed, or there are fewer
    good replies than the rule needs, the model does not change, a warning is logged, and the
    metrics report it.

    If the rule accepts weights, it gets the numbers of examples that clients claim, but no client
    counts more than `max_weight` times as much as the median one, and no minority of clients has
    half of the weight. Metrics of training and evaluation are combined by the weighted median.

    The arrays of replies are removed from their messages when they become rows, so there is only
    one copy of all updates in memory, and a second one of the largest array.

    Args:
        strategy: the strategy to wrap; it must not have a rule of its own.
        rule: a rule, or its name. Use rules with a `bad_fraction` instead of `n_bad`, because the
            number of replies varies.
        max_weight: limit of a client's weight, in multiples of the median weight; 1 makes weights
            equal.
        window: number of past rounds that suspicion considers; see
            :class:`~holdfast.monitor.Monitor`.
        on_round: called with the :class:`RoundReport` of every round of training.
        on_suspect: called with a client that becomes suspect; by default a warning is logged.

    Attributes:
        report: that of the last round; None before.
        rejected: the nodes that the rule left out in the last round.
        weights: the weight of each node in the result of the last round.
        dropped: why replies of the last round were not used, by node.
        counts: rounds in which each node was rejected, had little weight, or sent garbage.

    Example:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> RobustStrategy(FedAvg(), "mixing(bad_fraction=0.2) | geometric-median")
        RobustStrategy(FedAvg, NearestNeighborMixing(bad_fraction=0.2, rule=GeometricMedian()))
    """

    def _instruct(self, server_round: int, model: ModelArrays, messages: list[Message]) -> None:
        pass  # clients need not know

    def _read(self, model: ModelArrays, record: ArrayRecord) -> dict[str, Numbers]:
        return model.checked(record, list(model.values))

    def _decide(
        self, server_round: int, model: ModelArrays, found: Sorted[dict[str, Numbers]]
    ) -> Decision:
        rows = model.rows([reply.arrays for reply in found.good.values()])
        finite = rows.finite()
        if not bool(finite.all()):
            nodes = list(found.good)
            for i in torch.nonzero(~finite)[:, 0].tolist():
                found.drop(nodes[i], "is not finite")
            self._check_enough(found)
            rows = rows.keep(torch.nonzero(finite)[:, 0])
        voted = model.voted([reply.arrays for reply in found.good.values()])
        result = self.rule.aggregate(rows, **self._arguments(server_round, found))
        products = (result.gram or rows.gram()).for_all(rows.n)
        return Decision(result, result.vector, voted, products)
