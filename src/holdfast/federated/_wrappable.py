"""Checks of strategies, and of what is wrapped around them."""

from flwr.serverapp.strategy import (
    Bulyan,
    FedMedian,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from holdfast.aggregators import Aggregator
from holdfast.checks import check_instance, check_positive, failure


def check_wrappable(strategy: object) -> None:
    """Check that a strategy can use a single robust reply."""
    check_instance("strategy", strategy, Strategy)
    name = type(strategy).__name__
    if isinstance(strategy, (MultiKrum, Bulyan, FedMedian, FedTrimmedAvg)):
        raise failure("strategy", "have no rule of its own; wrap FedAvg", name)
    if isinstance(strategy, (QFedAvg, FedXgbBagging, FedXgbCyclic)):
        raise failure("strategy", "average the arrays of clients", name)
    if name.startswith("DifferentialPrivacy"):
        raise failure(
            "strategy",
            "add no noise for differential privacy, which is calibrated for the average",
            name,
        )
    if "secagg" in name.lower():
        raise failure("strategy", "show the updates of single clients", f"{name}, which hides them")


def check_options(rule: Aggregator, max_weight: float, on_round: object) -> None:
    """Check what is wrapped around a strategy."""
    needed = sorted(rule.needs - {"generator", "row_weights"})
    if needed:
        raise failure("rule", f"need no `{needed[0]}`, which a server does not have", rule)
    check_positive("max_weight", max_weight)
    if max_weight < 1:
        raise failure("max_weight", "be at least 1, which makes all weights equal", max_weight)
    if on_round is not None and not callable(on_round):
        raise failure("on_round", "be a function of a RoundReport", type(on_round).__name__)
