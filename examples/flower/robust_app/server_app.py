"""What the server does: rounds, a rule before the strategy, and an evaluation after each round."""

import ast
import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import flwr.serverapp.strategy
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from holdfast.checks import failure
from holdfast.federated import ExchangeStrategy, RobustStrategy
from holdfast.lab.records import FederatedRecord

from .door import AttackAtTheDoor
from .settings import Settings, is_made_alone
from .task import data_set, evaluate, initial_model


def flower_strategy(text: str, settings: Settings) -> Strategy:
    """One of Flower's strategies by its name and arguments: `"FedAdam(eta=0.01)"`."""
    call = ast.parse(text, mode="eval").body
    function = call.func if isinstance(call, ast.Call) else call
    name = function.id if isinstance(function, ast.Name) else ""
    kind = getattr(flwr.serverapp.strategy, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Strategy) or kind is Strategy:
        raise failure("strategy", "name one of flwr.serverapp.strategy", repr(text))
    keywords = call.keywords if isinstance(call, ast.Call) else []
    arguments: dict[str, Any] = {str(item.arg): ast.literal_eval(item.value) for item in keywords}
    sampling: dict[str, Any] = {
        "fraction_evaluate": settings.fraction_evaluate,
        "min_train_nodes": settings.min_nodes,
        "min_evaluate_nodes": settings.min_nodes,
        "min_available_nodes": settings.min_nodes,
    }
    return kind(**sampling | arguments)


def robust_strategy(settings: Settings) -> Strategy:
    """The strategy of a run, with its rule, and with attackers at the door if it has some."""
    strategy = flower_strategy(settings.strategy, settings)
    if settings.send < 1:
        strategy = ExchangeStrategy(strategy, settings.rule, send=settings.send)
    elif settings.rule:
        strategy = RobustStrategy(strategy, settings.rule)
    attack = settings.parsed_attack
    if attack is not None and not is_made_alone(attack):
        strategy = AttackAtTheDoor(strategy, attack, settings)
    return strategy


def record_of(settings: Settings) -> FederatedRecord:
    """A new record of the rounds, in words that `holdfast report` knows."""
    own = asdict(settings)
    for name in ("output", "record", "attack", "corruption", "bad_fraction", "redrawn"):
        del own[name]
    attack = settings.attack or settings.corruption
    adversaries = {"bad_fraction": settings.bad_fraction, "redrawn": settings.redrawn}
    own |= {
        "rule": {"name": f"{settings.strategy} + {settings.rule}"},
        "threat": {"attack": {"name": attack}, "adversaries": adversaries} if attack else {},
        "n_steps": own.pop("n_rounds"),
    }
    return FederatedRecord(settings.record, own, n_clients=own.pop("n_clients"))


def run(grid: Grid, settings: Settings) -> dict[int, float]:
    """All rounds of a run; returns the accuracy after each of them, on all test images."""
    strategy, accuracies = robust_strategy(settings), dict[int, float]()
    reporting = strategy
    if isinstance(strategy, AttackAtTheDoor):
        reporting = strategy.strategy
    if settings.output:
        Path(settings.output).write_text("")
    record = record_of(settings) if settings.record else None

    def after_round(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = initial_model(settings)
        model.load_state_dict(arrays.to_torch_state_dict())
        everything = torch.arange(len(data_set(settings.data).test))
        accuracies[server_round], loss = evaluate(settings, model, everything)
        found = {"round": server_round, "accuracy": accuracies[server_round], "loss": loss}
        report = getattr(reporting, "report", None)
        if report is not None:
            found |= asdict(report)
        if (
            record is not None
            and isinstance(reporting, (RobustStrategy, ExchangeStrategy))
            and report
        ):
            suspects = [suspect.row for suspect in reporting.suspects()]
            record.append(report, accuracy=accuracies[server_round], loss=loss, suspects=suspects)
        if settings.output:
            with Path(settings.output).open("a") as file:
                file.write(json.dumps(found) + "\n")
        return MetricRecord({"accuracy": accuracies[server_round], "loss": loss})

    with record or nullcontext():
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(initial_model(settings).state_dict()),
            num_rounds=settings.n_rounds,
            timeout=settings.timeout,
            train_config=ConfigRecord(settings.config()),
            evaluate_config=ConfigRecord(settings.config()),
            evaluate_fn=after_round,
        )
    return accuracies


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run with the settings of pyproject.toml and `flwr run --run-config`."""
    run(grid, Settings.read(context.run_config))
