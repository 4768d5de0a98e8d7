"""Records of federated training: each round is a step, each client a row."""

import os
from collections.abc import Iterable, Mapping
from statistics import fmean
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

from holdfast.checks import failure
from holdfast.lab.records._reading import is_record
from holdfast.lab.records._writing import Journal, create_record, versions

if TYPE_CHECKING:
    from holdfast.federated import RoundReport  # needs flwr


@final
class FederatedRecord:
    """The record of a strategy of :mod:`holdfast.federated`, which `holdfast report` reads.

    A client's row is its place in the order in which nodes first replied. It is a context manager;
    a record that is left by an error stays unfinished.

    Args:
        folder: a folder without a record.
        config: plain values that determine the run. The report knows `data`, `model`, `n_steps`
            (rounds), `seed`, `{"rule": {"name": ...}}` and `{"threat": {"attack": {"name": ...}}}`.
        n_clients: the number of nodes.
    """

    def __init__(
        self, folder: str | os.PathLike[str], config: Mapping[str, Any], *, n_clients: int
    ) -> None:
        if is_record(folder):
            raise failure("folder", "hold no record", folder)
        create_record(folder, {**config, "workers": n_clients}, versions=versions())
        self._journal, self._n_clients = Journal(folder), n_clients
        self._rows: dict[int, int] = {}
        self._n_rounds = 0

    def append(
        self, report: "RoundReport", *, accuracy: float, loss: float, suspects: Iterable[int] = ()
    ) -> None:
        """Add a round.

        Args:
            report: that of the strategy.
            accuracy: that of the model after the round, on test data.
            loss: its loss there.
            suspects: nodes that are suspect now.
        """
        for node in (*report.n_bytes, *report.dropped):
            self._rows.setdefault(node, len(self._rows))
        if len(self._rows) > self._n_clients:
            raise failure("n_clients", f"be at least {len(self._rows)}", self._n_clients)
        weights = [0.0] * self._n_clients
        for node, weight in report.weights.items():
            weights[self._rows[node]] = weight
        left_out = sorted(self._rows[node] for node in {*report.rejected, *report.dropped})
        self._n_rounds += 1
        entry: dict[str, Any] = {
            "step": self._n_rounds,
            "loss": loss,
            "accuracy": accuracy,
            "test_loss": loss,
        }
        entry |= {"rejected": left_out, "n_rejected": len(left_out), "weights": weights}
        entry |= {"n_bytes": fmean(report.n_bytes.values())} if report.n_bytes else {}
        entry |= {"suspects": sorted(self._rows[node] for node in suspects)}
        entry |= {"nodes": list(self._rows), "seconds": {"aggregation": report.seconds}}
        self._journal.append(entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._journal as journal:
            if kind is None:
                journal.append({"end": "finished", "step": self._n_rounds})
