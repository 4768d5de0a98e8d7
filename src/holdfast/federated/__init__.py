"""Flower strategies with a rule instead of the average, worker memory, and the exchange."""

from holdfast.federated._clients import RoundReport
from holdfast.federated._exchange_strategy import ExchangeStrategy
from holdfast.federated._local_grid import LocalGrid
from holdfast.federated._mods import worker_memory, worker_momentum
from holdfast.federated._robust_strategy import RobustStrategy

__all__ = [
    "ExchangeStrategy",
    "LocalGrid",
    "RobustStrategy",
    "RoundReport",
    "worker_memory",
    "worker_momentum",
]
