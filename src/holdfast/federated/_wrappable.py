"""Check of the strategies that can be wrapped."""

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

from holdfast.checks import check_instance, failure


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
            "add no noise for differential privacy, which is measured for the average",
            name,
        )
    if "secagg" in name.lower():
        raise failure("strategy", "show the updates of single clients", f"{name}, which hides them")
