"""The Flower app of examples/flower, with its real client app and strategies, in one process."""

import json
import logging
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.flower.robust_app.client_app import app
from examples.flower.robust_app.door import AttackAtTheDoor
from examples.flower.robust_app.server_app import flower_strategy, robust_strategy, run
from examples.flower.robust_app.settings import Settings
from flwr.serverapp.strategy import FedAdam, FedMedian

from holdfast.federated import ExchangeStrategy, LocalGrid, RobustStrategy
from holdfast.lab.records import Summary, read_record
from holdfast.lab.report import collect, write_report

FLOWER = Path(__file__).parent.parent.parent / "examples" / "flower"
SMALL: dict[str, Any] = {"data": "fashion-mnist-slice", "model": "mlp", "n_rounds": 3}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def accuracy(nodes: dict[int, Any] | None = None, **settings: Any) -> float:
    """The accuracy after the last round."""
    chosen = Settings(**(SMALL | settings))
    configs: dict[int, Any] = {100 + i: {"partition-id": i} for i in range(chosen.n_clients)}
    for i, config in (nodes or {}).items():
        configs[100 + i] |= config
    return run(LocalGrid(app, configs), chosen)[chosen.n_rounds]


@pytest.fixture(scope="module")
def clean() -> float:
    """The accuracy without bad clients, by the plain average."""
    return accuracy(rule="")


def test_without_bad_clients_the_rule_is_the_average(clean: float) -> None:
    assert clean > 0.66
    assert accuracy() == pytest.approx(clean, abs=0.01)


def test_a_rule_survives_what_the_average_does_not(clean: float) -> None:
    attacked: dict[str, Any] = {"bad_fraction": 0.2, "attack": "scaled-flip"}
    assert accuracy(rule="", **attacked) < 0.2
    # Two clients of ten are missing, and with them some of the classes.
    assert accuracy(**attacked) > clean - 0.08


def test_bad_clients_are_named_round_by_round(tmp_path: Path) -> None:
    output = tmp_path / "rounds.jsonl"
    settings: dict[str, Any] = {"bad_fraction": 0.2, "attack": "scaled-flip"}
    settings["output"] = str(output)
    accuracy(**settings)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    bad = Settings(**SMALL, **settings).bad_clients(1).nonzero()[:, 0]
    for line in lines[1:]:
        assert sorted(line["rejected"]) == [100 + int(i) for i in bad]
        assert len(line["n_bytes"]) == 10


def test_a_record_is_one_of_the_runs_of_a_report(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"bad_fraction": 0.2, "attack": "scaled-flip"}
    clean, attacked = tmp_path / "clean", tmp_path / "attacked"
    last = accuracy(**settings, record=str(attacked))
    accuracy(record=str(clean))
    with pytest.raises(ValueError, match="`folder` must hold no record"):
        accuracy(**settings, record=str(attacked))
    run_of_it = Summary.of(read_record(attacked))
    assert run_of_it.has_ended
    assert run_of_it.accuracy == pytest.approx(last)
    write_report(collect([clean, attacked]), tmp_path / "report", formats=["svg"])
    text = (tmp_path / "report" / "report.md").read_text()
    bad = Settings(**SMALL, **settings).bad_clients(1).nonzero()[:, 0]
    # Replies arrive in the order of the nodes, which is the order of the clients.
    shown = ", ".join(str(int(i)) for i in bad)
    (line,) = [one for one in text.splitlines() if one.endswith(f"| 2.0 | {shown} |")]
    assert line.startswith("| FedAvg + radius-filter | scaled-flip | ")


def test_bad_clients_can_be_drawn_again_at_every_round(tmp_path: Path) -> None:
    output = tmp_path / "rounds.jsonl"
    settings: dict[str, Any] = {"bad_fraction": 0.2, "attack": "scaled-flip", "redrawn": True}
    accuracy(**settings, output=str(output))
    lines = [json.loads(line) for line in output.read_text().splitlines()][1:]
    for line in lines:
        bad = Settings(**SMALL, **settings).bad_clients(line["round"]).nonzero()[:, 0]
        assert sorted(line["rejected"]) == [100 + int(i) for i in bad]
    assert len({tuple(sorted(line["rejected"])) for line in lines}) > 1


def test_a_node_can_be_bad_on_its_own_account(clean: float) -> None:
    attack = {"attack": "scaled-flip(factor=100.0)"}
    assert accuracy({7: attack}, rule="") < 0.3
    assert accuracy({7: attack}) > clean - 0.08


def test_attackers_who_need_the_updates_of_others_stand_at_the_door(clean: float) -> None:
    attacked: dict[str, Any] = {"bad_fraction": 0.4, "attack": "huddle"}
    assert isinstance(robust_strategy(Settings(**SMALL, **attacked)), AttackAtTheDoor)
    # The attackers know the rule, and do the more harm for it.
    assert accuracy(rule="mean", **attacked) < clean - 0.2
    assert accuracy(rule="geometric-median", **attacked) < clean - 0.05


def test_wrong_labels_on_bad_clients(clean: float) -> None:
    """On clients that differ, the median bears few of them; see docs/federated.md."""

    def attacked(rule: str, share: float) -> float:
        wrong = "wrong-labels(labels=8)"
        return accuracy(rule=rule, bad_fraction=share, corruption=wrong)

    assert attacked("", 0.4) < clean - 0.2
    assert attacked("geometric-median", 0.2) > 0.45


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "FedAdam(eta=0.01)"},
        {"strategy": "FedProx(proximal_mu=0.1)"},
        {"strategy": "FedMedian", "rule": ""},
        {"momentum": 0.5},
        {"send": 0.2, "rule": "geometric-median", "n_rounds": 6},
        {"partition": "shuffled", "optimizer": "sgd(lr=0.05, momentum=0.5)"},
        {"fraction_evaluate": 1.0, "schedule": "cosine"},
    ],
    ids=str,
)
def test_other_settings_train_as_well(changes: dict[str, Any]) -> None:
    assert accuracy(**changes) > 0.45


def test_a_proximal_term_holds_clients_back() -> None:
    weak, strong = (accuracy(strategy=f"FedProx(proximal_mu={mu})") for mu in (0.0, 20.0))
    assert strong < weak - 0.05


def test_what_bad_clients_send_in_an_exchange_is_attacked() -> None:
    settings: dict[str, Any] = {"send": 0.2, "bad_fraction": 0.2, "attack": "scaled-flip"}
    assert accuracy(rule="mean", **settings) < 0.25
    assert accuracy(rule="geometric-median", **settings) > 0.35


def test_one_gradient_per_round_is_the_papers_protocol(tmp_path: Path) -> None:
    """Table 4's file, with a smaller model, the bundled images, and three rounds."""
    config = tomllib.loads((FLOWER / "table4.toml").read_text())
    settings = Settings.read(
        config | {"data": "fashion-mnist-slice", "model": "mlp", "n-rounds": 3}
    )
    assert (settings.n_clients, settings.batch_size, settings.local_steps) == (10, 128, 1)
    assert settings.partition == "shards(n_shards=80)"
    configs: dict[int, Any] = {i: {"partition-id": i} for i in range(10)}
    accuracies = run(LocalGrid(app, configs), settings)
    assert accuracies[3] > accuracies[0] + 0.05


def test_the_defaults_are_those_of_the_project() -> None:
    project = tomllib.loads((FLOWER / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"] == Settings().config()
    assert project["project"]["dependencies"] == []


def test_strategies_by_name() -> None:
    settings = Settings(**SMALL)
    adam = flower_strategy("FedAdam(eta=0.01)", settings)
    assert isinstance(adam, FedAdam)
    assert adam.eta == 0.01
    assert isinstance(flower_strategy("FedMedian", settings), FedMedian)
    for text in ("FedBest", "Strategy", "print('x')", "flwr.FedAvg"):
        with pytest.raises(ValueError, match="`strategy` must name one of"):
            flower_strategy(text, settings)
    assert isinstance(robust_strategy(settings), RobustStrategy)
    assert isinstance(robust_strategy(Settings(**SMALL, send=0.1)), ExchangeStrategy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rounds": 0}, "`n_rounds` must be a whole number"),
        ({"send": 0.0}, "`send` must be in"),
        ({"momentum": 1.0}, "`momentum` must be in"),
        ({"timeout": 0.0}, "`timeout` must be a finite number above 0"),
        ({"attack": "no-such"}, "no-such"),
        ({"attack": "huddle(direction='drift')"}, "needs drift"),
        ({"attack": "huddle", "send": 0.1}, "`attack` must need only the own update"),
        ({"attack": "scaled-flip", "corruption": "wrong-labels"}, "beside a corruption"),
        ({"partition": "shards(n_shards=0)"}, "n_shards"),
        ({"fraction_evaluate": 2.0}, "fraction_evaluate"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**(SMALL | changes))


def test_unknown_keys_are_refused_and_whole_numbers_are_numbers() -> None:
    with pytest.raises(ValueError, match=r"`config` must have only keys .*\['n-round'\]"):
        Settings.read({"n-round": 3})
    assert Settings.read({"timeout": 30}).timeout == 30.0
