"""The strategy equals the rule on stacked updates, before the server step, in any dtype."""

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from holdfast.aggregators import rules
from holdfast.federated import LocalGrid, RobustStrategy, RoundReport
from holdfast.seeds import stream
from tests.federated.cases import NODES, Arrays, answer, ask, model, moved, numbers, record, same

RULES = [
    "mean",
    "radius-filter",
    "geometric-median",
    "mixing(bad_fraction=0.2) | geometric-median",
    "coordinate-median",
    "trimmed-mean(bad_fraction=0.2)",
    "krum(bad_fraction=0.2)",
    "blockwise(tile=4) | geometric-median",
    "sketched(fraction=0.5) | geometric-median",
    "centered-clipping(radius=1.0)",
]


def columns(arrays: Arrays) -> torch.Tensor:
    """The columns of a model, the slow and obvious way."""
    names = ["layer.weight", "layer.bias"]
    return torch.cat([torch.tensor(arrays[name]).flatten().float() for name in names])


@pytest.mark.parametrize("text", RULES)
def test_it_is_the_rule_on_the_stacked_updates(text: str) -> None:
    before = model()
    strategy = RobustStrategy(FedAvg(), text, max_weight=1.0)
    messages = ask(strategy, before)
    models = {node: moved(before, node) for node in NODES}
    models[NODES[3]] = moved(before, NODES[3], scale=-5.0)
    after, _ = strategy.aggregate_train(
        1, [answer(messages[node], models[node]) for node in reversed(NODES)]
    )
    rows = torch.stack([columns(models[node]) for node in NODES]) - columns(before)
    rule = rules.parse(text)
    arguments: dict[str, Any] = {}
    if "generator" in rule.takes:
        arguments["generator"] = stream(0, "federated rule", 1)
    parts = list(torch.split(rows, [12, 4], dim=1))
    expected = columns(before) + rule(parts, **arguments)
    # Half precision holds three digits.
    torch.testing.assert_close(columns(numbers(after)), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        torch.tensor(numbers(after)["layer.weight"]).flatten(), expected[:12], rtol=1e-5, atol=1e-5
    )


def test_it_keeps_names_and_dtypes_and_votes_on_counters() -> None:
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    models = {node: moved(before, node) for node in NODES}
    models[NODES[0]]["norm.num_batches_tracked"] = np.asarray(2**62)
    models[NODES[1]]["scale"] = np.asarray(-1e30, np.float32)
    after, _ = strategy.aggregate_train(1, [answer(messages[n], models[n]) for n in NODES])
    found = numbers(after)
    assert list(found) == list(before)
    for name, value in before.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
    counters = sorted(int(m["norm.num_batches_tracked"]) for m in models.values())
    assert found["norm.num_batches_tracked"] == counters[4]
    assert found["scale"] in [m["scale"] for m in models.values()]
    assert 1.5 < found["scale"] < 1.7


def test_large_counters_keep_every_digit_whatever_dtype_one_client_sends() -> None:
    before = model() | {"seen": np.asarray([2**53 + 1, 1])}
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    models = {node: moved(before, node) | {"seen": before["seen"]} for node in NODES}
    models[NODES[0]]["seen"] = before["seen"].astype(np.uint64)
    models[NODES[1]]["seen"] = np.asarray([False, True])
    after, _ = strategy.aggregate_train(1, [answer(messages[n], models[n]) for n in NODES])
    assert numbers(after)["seen"].tolist() == [2**53 + 1, 1]
    assert strategy.dropped == {}


@pytest.mark.parametrize(
    ("rule", "n", "n_warnings"), [("radius-filter", 2, 1), ("radius-filter", 3, 0), ("mean", 2, 0)]
)
def test_too_few_replies_to_resist_a_bad_one_are_said(
    rule: str, n: int, n_warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    before, nodes = model(), NODES[:n]
    strategy = RobustStrategy(FedAvg(), rule)
    messages = ask(strategy, before, nodes)
    strategy.aggregate_train(1, [answer(messages[one], moved(before, one)) for one in nodes])
    found = [text for text in caplog.messages if "resists no bad one" in text]
    assert len(found) == n_warnings


class Recorder(FedAvg):
    """Keeps the replies that it is given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.given: list[list[Message]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.given.append(list(replies))
        return super().aggregate_train(server_round, self.given[-1])


SERVER_STEPS: list[type[Strategy]] = [FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad, FedProx]


@pytest.mark.parametrize("kind", SERVER_STEPS)
def test_the_server_step_comes_after_the_rule(kind: Any) -> None:
    options = {FedAvgM: {"server_momentum": 0.9}, FedProx: {"proximal_mu": 0.1}}.get(kind, {})
    before = {name: value for name, value in model().items() if value.dtype == np.float32}
    strategy, plain = RobustStrategy(kind(**options), "mean"), kind(**options)
    ours = theirs = before
    for server_round in (1, 2, 3):
        messages = ask(strategy, ours, server_round=server_round)
        after, _ = strategy.aggregate_train(
            server_round, [answer(messages[n], moved(ours, n)) for n in NODES]
        )
        # A client that is alone sends the mean of all: the plain strategy must do the same with it.
        messages = ask(plain, theirs, server_round=server_round)
        means = {
            name: np.mean([moved(theirs, n)[name] for n in NODES], axis=0, dtype=np.float64)
            for name in theirs
        }
        mean = {name: np.asarray(value, theirs[name].dtype) for name, value in means.items()}
        scales = sorted(float(moved(theirs, n)["scale"]) for n in NODES)
        mean["scale"] = np.asarray(scales[4], np.float32)
        expected, _ = plain.aggregate_train(server_round, [answer(messages[NODES[0]], mean)])
        ours, theirs = numbers(after), numbers(expected)
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-4, atol=2e-5)


def test_the_wrapped_strategy_gets_one_reply() -> None:
    before, inner = model(), Recorder()
    strategy = RobustStrategy(inner)
    messages = ask(strategy, before)
    strategy.aggregate_train(1, [answer(messages[n], moved(before, n), loss=2.0) for n in NODES])
    ((reply,),) = inner.given
    assert list(reply.content.metric_records.values()) == [{"num-examples": 1.0, "loss": 2.0}]
    assert len(reply.content.array_records) == 1


def test_metrics_and_attributes_say_what_happened() -> None:
    before, reports = model(), list[RoundReport]()
    strategy = RobustStrategy(FedAvg(), on_round=reports.append)
    assert (strategy.rejected, strategy.weights, strategy.dropped) == ([], {}, {})
    messages = ask(strategy, before)
    models = {node: moved(before, node) for node in NODES}
    models[NODES[2]] = moved(before, NODES[2], scale=50.0)
    del models[NODES[5]]["scale"]
    replies = [answer(messages[n], models[n], loss=float(i)) for i, n in enumerate(NODES[:9])]
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics is not None
    assert metrics["loss"] == 3.0  # the lower median of 0 … 8 without 5
    assert metrics["holdfast-asked"] == 10
    assert metrics["holdfast-good"] == 8
    assert metrics["holdfast-dropped"] == 2
    assert metrics["holdfast-rejected-nodes"] == strategy.rejected == [NODES[2]]
    assert metrics["holdfast-dropped-nodes"] == list(strategy.dropped) == [NODES[5], NODES[9]]
    assert strategy.dropped[NODES[9]] == "did not reply"
    assert "lacks the arrays ['scale']" in strategy.dropped[NODES[5]]
    assert strategy.weights[NODES[2]] == 0.0
    assert sum(strategy.weights.values()) == pytest.approx(1.0)
    assert metrics["holdfast-nodes"] == list(strategy.weights)
    assert metrics["holdfast-weights"] == list(strategy.weights.values())
    assert metrics["holdfast-model-changed"] == 1
    n_bytes = sum(len(array.data) for array in record(before).values())
    assert metrics["holdfast-bytes"] == [n_bytes] * 8
    assert metrics["holdfast-uplink-bytes"] == 8 * n_bytes
    assert strategy.counts[NODES[2]] == strategy.counts[NODES[5]] == 1
    assert sum(strategy.counts.values()) == 2
    assert [report.round for report in reports] == [1]
    assert reports[0] is strategy.report
    # Flower stores metrics as protobufs, in which ids have 64 bits without a sign.
    assert MetricRecord.inflate(metrics.deflate()) == metrics


def test_arrays_leave_their_messages_as_they_become_rows() -> None:
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    replies = [answer(messages[node], moved(before, node)) for node in NODES]
    strategy.aggregate_train(1, replies)
    assert [len(reply.content["arrays"]) for reply in replies] == [0] * 10


def test_the_order_of_replies_does_not_matter() -> None:
    before, results = model(), []
    for order in (NODES, NODES[::-1]):
        strategy = RobustStrategy(FedAvg(), "geometric-median")
        messages = ask(strategy, before)
        after, _ = strategy.aggregate_train(
            1, [answer(messages[n], moved(before, n)) for n in order]
        )
        results.append(numbers(after))
    assert same(*results)


def test_a_whole_run_with_a_real_client_app() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = numbers(message.content.array_records["arrays"])
        i = int(context.node_config["partition-id"])
        return answer(message, moved(arrays, i, scale=1e3 if i < 2 else 0.1))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        i = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": 5, "accuracy": 1e9 if i < 2 else 0.8})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    grid = LocalGrid(app, {100 + i: {"partition-id": i} for i in range(6)})
    strategy = RobustStrategy(FedAvg())
    result = strategy.start(grid, record(model()), num_rounds=12)
    assert np.abs(numbers(result.arrays)["layer.weight"]).max() < 5
    assert strategy.rejected == [100, 101]
    assert {suspect.row for suspect in strategy.suspects()} == {100, 101}
    assert result.evaluate_metrics_clientapp[12] == {"accuracy": 0.8}


def test_evaluation_is_bounded_by_a_weighted_median() -> None:
    strategy = RobustStrategy(FedAvg())
    grid = LocalGrid(ClientApp(), {node: {} for node in NODES})
    asked = strategy.configure_evaluate(1, record(model()), ConfigRecord(), grid)
    replies = []
    for i, message in enumerate(asked):
        value = float("nan") if i == 0 else 1e30 if i < 4 else 0.5 + i / 100
        told = MetricRecord({"num-examples": 10**7 if i < 4 else 10, "loss": value})
        replies.append(Message(RecordDict({"m": told}), reply_to=message))
    metrics = strategy.aggregate_evaluate(1, replies)
    assert metrics is not None
    assert isinstance(metrics["loss"], float)
    assert 0.54 <= metrics["loss"] <= 0.59
    assert strategy.aggregate_evaluate(1, []) is None


REFUSED: list[tuple[Strategy, str]] = [
    (Krum(), "no rule of its own"),
    (MultiKrum(), "no rule of its own"),
    (Bulyan(), "no rule of its own"),
    (FedMedian(), "no rule of its own"),
    (FedTrimmedAvg(), "no rule of its own"),
    (QFedAvg(client_learning_rate=0.1), "average the arrays"),
    (FedXgbBagging(), "average the arrays"),
    (DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 5), "differential privacy"),
    (RobustStrategy(FedAvg()), "be one of Flower's"),
]


@pytest.mark.parametrize(("strategy", "reason"), REFUSED, ids=lambda value: type(value).__name__)
def test_strategies_that_cannot_be_wrapped_are_refused(strategy: Strategy, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RobustStrategy(strategy)


def test_secure_aggregation_is_refused_by_name() -> None:
    class SecAggPlusStrategy(FedAvg):
        pass

    with pytest.raises(ValueError, match="SecAggPlusStrategy, which hides them"):
        RobustStrategy(SecAggPlusStrategy())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rule": "trusted-reference"}, "need no `reference`"),
        ({"max_weight": 0.5}, "at least 1"),
        ({"max_weight": float("nan")}, "finite number"),
        ({"window": 3}, "whole number of at least 20"),
        ({"on_round": 3}, "function of a RoundReport"),
        ({"on_suspect": 3}, "function of a Suspect"),
        ({"rule": "krumm"}, "krum"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RobustStrategy(FedAvg(), **options)


def test_a_model_that_no_rule_can_read_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one floating array"):
        ask(RobustStrategy(FedAvg()), {"n": np.asarray(3)})
    with pytest.raises(ValueError, match="dtype"):
        ask(RobustStrategy(FedAvg()), {"n": np.zeros(3, np.complex64)})
    with pytest.raises(ValueError, match="after configure_train"):
        RobustStrategy(FedAvg()).aggregate_train(1, [])
