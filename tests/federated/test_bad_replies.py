"""Malformed replies never raise, and the model changes only if most replies are good."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import FedAvg, MultiKrum, Strategy
from hypothesis import given
from hypothesis import strategies as st

from holdfast.federated import LocalGrid, RobustStrategy
from tests.federated.cases import NODES, Arrays, answer, ask, model, moved, numbers, record, same

NAN = float("nan")


def without(arrays: Arrays, name: str) -> Arrays:
    return {key: value for key, value in arrays.items() if key != name}


def raw(data: bytes, *, stype: str = "numpy.ndarray") -> Array:
    return Array(dtype="float32", shape=(4, 3), stype=stype, data=data)


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=True)
    return stream.getvalue()


def with_weight(message: Message, arrays: Arrays, array: Array) -> Message:
    """A reply whose first array is replaced."""
    content = record(arrays)
    content["layer.weight"] = array
    return answer(message, content)


BAD: dict[str, tuple[Callable[[Message, Arrays], Message], str]] = {
    "an error": (lambda m, a: Message(Error(2, "out of memory"), reply_to=m), "out of memory"),
    "nothing": (lambda m, a: Message(RecordDict(), reply_to=m), "0 records of arrays and 0"),
    "no arrays": (
        lambda m, a: Message(RecordDict({"m": MetricRecord({"num-examples": 1})}), reply_to=m),
        "no record of arrays",
    ),
    "two records of arrays": (
        lambda m, a: Message(
            RecordDict({"a": record(a), "b": record(a), "m": MetricRecord({"num-examples": 1})}),
            reply_to=m,
        ),
        "2 records of arrays",
    ),
    "no metrics": (lambda m, a: Message(RecordDict({"a": record(a)}), reply_to=m), "0 of metrics"),
    "no examples": (
        lambda m, a: Message(
            RecordDict({"a": record(a), "m": MetricRecord({"loss": 1.0})}), reply_to=m
        ),
        "no 'num-examples'",
    ),
    "zero examples": (lambda m, a: answer(m, a, num_examples=0), "not a number above 0"),
    "negative examples": (lambda m, a: answer(m, a, num_examples=-5), "not a number above 0"),
    "NaN examples": (lambda m, a: answer(m, a, num_examples=NAN), "not a number above 0"),
    "a list of examples": (lambda m, a: answer(m, a, num_examples=[5, 5]), "not a number above 0"),
    "more examples than a float holds": (
        lambda m, a: answer(m, a, num_examples=10**400),
        "too large",
    ),
    "a missing array": (lambda m, a: answer(m, without(a, "layer.bias")), "lacks the arrays"),
    "another array": (lambda m, a: answer(m, a | {"x": np.zeros(2)}), "unknown ones ['x']"),
    "another shape": (
        lambda m, a: answer(m, a | {"layer.weight": np.zeros((3, 4), np.float32)}),
        "shape (3, 4), not (4, 3)",
    ),
    "another size": (
        lambda m, a: answer(m, a | {"layer.bias": np.zeros(10**6, np.float16)}),
        "shape (1000000,), not (4,)",
    ),
    "integers": (
        lambda m, a: answer(m, a | {"layer.weight": np.zeros((4, 3), np.int64)}),
        "dtype int64, not float32",
    ),
    "complex numbers": (
        lambda m, a: answer(m, a | {"layer.weight": np.zeros((4, 3), np.complex64)}),
        "dtype complex64",
    ),
    "text": (lambda m, a: answer(m, a | {"layer.weight": np.full((4, 3), "x")}), "dtype <U1"),
    "a float counter": (
        lambda m, a: answer(m, a | {"norm.num_batches_tracked": np.asarray(1.0)}),
        "dtype float64, not int64",
    ),
    "a counter beyond the range": (
        lambda m, a: answer(m, a | {"norm.num_batches_tracked": np.asarray(2**63, np.uint64)}),
        "leaves the range of int64",
    ),
    "NaN": (
        lambda m, a: answer(m, a | {"layer.weight": np.full((4, 3), NAN, np.float32)}),
        "is not finite",
    ),
    "one infinity": (
        lambda m, a: answer(m, a | {"layer.bias": np.asarray([0, np.inf, 0, 0], np.float16)}),
        "is not finite",
    ),
    "overflow": (
        lambda m, a: answer(m, a | {"layer.weight": np.full((4, 3), 1e300)}),
        "is not finite",
    ),
    "NaN without dimensions": (
        lambda m, a: answer(m, a | {"scale": np.asarray(NAN, np.float32)}),
        "array 'scale' is not finite",
    ),
    "bytes that are no array": (lambda m, a: with_weight(m, a, raw(b"\x00" * 99)), "magic string"),
    "no bytes": (lambda m, a: with_weight(m, a, raw(b"")), "magic string"),
    "half of the bytes": (
        lambda m, a: with_weight(m, a, raw(saved(a["layer.weight"])[:-20])),
        "buffer is smaller",
    ),
    "a header that promises terabytes": (
        lambda m, a: with_weight(
            m, a, raw(saved(np.zeros((4, 3), np.float32)).replace(b"(4, 3)", b"(4,9999999999)"))
        ),
        "",
    ),
    "a pickle": (
        lambda m, a: with_weight(m, a, raw(saved(np.full((4, 3), object)))),
        "has dtype object",
    ),
    "another serialization": (
        lambda m, a: with_weight(m, a, raw(saved(a["layer.weight"]), stype="torch")),
        "serialized as 'torch'",
    ),
    "secure aggregation": (
        lambda m, a: Message(
            RecordDict({"secaggplus_configs": ConfigRecord({"masked_params": b"1"})}), reply_to=m
        ),
        "secure aggregation (SecAgg, SecAgg+)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_reply_is_dropped_with_a_reason_and_the_others_count(name: str) -> None:
    make, reason = BAD[name]
    before, results = model(), []
    for bad in (NODES[:4], []):
        strategy = RobustStrategy(FedAvg())
        messages = ask(strategy, before, NODES if bad else NODES[4:])
        replies = [make(messages[node], moved(before, node)) for node in bad]
        replies += [answer(messages[node], moved(before, node)) for node in NODES[4:]]
        after, metrics = strategy.aggregate_train(1, replies)
        assert metrics is not None
        assert metrics["holdfast-good"] == 6
        assert metrics["holdfast-dropped"] == len(bad)
        assert sorted(strategy.dropped) == bad
        assert all(reason in why for why in strategy.dropped.values())
        results.append(numbers(after))
    assert same(*results)  # as if they had not been asked


@pytest.mark.parametrize("name", sorted(set(BAD) - {"an error"}))
def test_without_a_majority_of_good_replies_the_model_is_unchanged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, _ = BAD[name]
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    replies = [make(messages[node], moved(before, node)) for node in NODES[:5]]
    replies += [answer(messages[node], moved(before, node)) for node in NODES[5:]]
    after, metrics = strategy.aggregate_train(1, replies)
    assert same(numbers(after), before)
    assert metrics is not None
    assert metrics["holdfast-model-changed"] == 0
    assert strategy.report is not None
    assert "5 of 10 clients sent a good reply" in strategy.report.reason
    assert "the model is unchanged" in caplog.text
    assert strategy.weights == {}


@pytest.mark.parametrize(("n_good", "changes"), [(6, True), (5, False), (1, False)])
def test_who_answers_alone_does_not_own_the_round(n_good: int, changes: bool) -> None:
    """Whether others fail or are silent: liars may be what keeps them from answering."""
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    replies = [BAD["an error"][0](messages[node], before) for node in NODES[:3]]
    replies += [answer(messages[node], moved(before, node)) for node in NODES[10 - n_good :]]
    after, _ = strategy.aggregate_train(1, replies)
    assert same(numbers(after), before) != changes
    assert strategy.dropped[NODES[3]] == "did not reply"
    assert sum(strategy.counts.values()) == 0  # a failure is no reason for suspicion


def test_fewer_good_replies_than_the_rule_needs_leave_the_model_unchanged() -> None:
    before = model()
    strategy = RobustStrategy(FedAvg(), "krum(n_bad=2)")
    messages = ask(strategy, before)
    after, _ = strategy.aggregate_train(
        1, [answer(messages[node], moved(before, node)) for node in NODES[:6]]
    )
    assert same(numbers(after), before)
    assert strategy.report is not None
    assert "Krum(n_bad=2) needs 7 good replies, got 6" in strategy.report.reason


def test_stale_duplicate_and_unasked_replies_are_dropped() -> None:
    before, results = model(), []
    for extra in (True, False):
        strategy = RobustStrategy(FedAvg())
        stale = ask(strategy, before, server_round=1)
        messages = ask(strategy, before, NODES[:8], server_round=2)
        stranger = ask(RobustStrategy(FedAvg()), before, [5, 6], server_round=2)[5]
        replies = [answer(messages[node], moved(before, node)) for node in NODES[1:8]]
        if extra:
            wild = {name: np.asarray(value + 1, value.dtype) for name, value in before.items()}
            replies += [
                answer(stale[NODES[0]], wild),
                answer(messages[NODES[3]], wild),
                answer(stranger, wild),
            ]
        after, _ = strategy.aggregate_train(2, replies)
        if extra:
            assert strategy.dropped == {
                NODES[0]: "replied to round '1'",
                NODES[3]: "replied twice",
                5: "was not asked",
            }
        results.append(numbers(after))
    assert same(*results)


def test_strangers_cannot_outvote_the_clients_that_were_asked() -> None:
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    strangers = ask(RobustStrategy(FedAvg()), before, range(100))
    replies = [Message(RecordDict(), reply_to=message) for message in strangers.values()]
    replies += [answer(messages[node], moved(before, node)) for node in NODES]
    after, _ = strategy.aggregate_train(1, replies)
    assert strategy.report is not None
    assert strategy.report.reason == ""
    assert not same(numbers(after), before)


def test_a_narrower_or_wider_float_is_no_reason_to_drop_a_reply() -> None:
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    kinds = [np.float16, np.float32, np.float64]
    replies = []
    for i, node in enumerate(NODES):
        arrays = moved(before, node)
        arrays["layer.weight"] = arrays["layer.weight"].astype(kinds[i % 3])
        arrays["norm.num_batches_tracked"] = np.asarray(9, np.int32)
        replies.append(answer(messages[node], arrays))
    after, _ = strategy.aggregate_train(1, replies)
    assert strategy.dropped == {}
    assert numbers(after)["layer.weight"].dtype == np.float32
    assert numbers(after)["norm.num_batches_tracked"] == 9


@pytest.mark.parametrize("value", [1e30, -1e38, 1e4])
def test_huge_replies_are_left_out(value: float) -> None:
    before = model()
    strategy = RobustStrategy(FedAvg())
    messages = ask(strategy, before)
    models = {node: moved(before, node) for node in NODES}
    for node in NODES[:4]:
        models[node]["layer.weight"] = np.full((4, 3), value, np.float32)
    after, _ = strategy.aggregate_train(1, [answer(messages[n], models[n]) for n in NODES])
    assert strategy.rejected == NODES[:4]
    change = numbers(after)["layer.weight"] - before["layer.weight"]
    assert 0.05 < change.min() <= change.max() < 0.15


def test_where_flowers_own_strategies_differ() -> None:
    before = model()
    models = {node: moved(before, node) for node in NODES}

    # Two more replies with NaN than MultiKrum was told to expect make all of its scores NaN, and it
    # picks the reply that came first: here one that is a thousand times as large.
    del before["layer.bias"]
    for arrays in models.values():
        del arrays["layer.bias"]
    models[NODES[0]]["layer.weight"] *= 1000
    for node in NODES[8:]:
        models[node]["layer.weight"][0, 0] = NAN
    flower = MultiKrum()
    ours = RobustStrategy(FedAvg(), "multi-krum(bad_fraction=0.2)")
    largest = []
    strategy: Strategy
    for strategy in (flower, ours):
        messages = ask(strategy, before)
        after, _ = strategy.aggregate_train(1, [answer(messages[n], models[n]) for n in NODES])
        largest.append(np.abs(numbers(after)["layer.weight"] - before["layer.weight"]).max())
    assert largest[0] > 100
    assert largest[1] < 0.2

    # One malformed reply ends the round of every client, and with it the run.
    messages = ask(FedAvg(), before)
    replies = [answer(messages[node], moved(before, node)) for node in NODES[1:]]
    with pytest.raises(InconsistentMessageReplies):
        FedAvg().aggregate_train(
            1, [*replies, answer(messages[NODES[0]], without(before, "layer.weight"))]
        )

    # Weights are what clients say.
    moves = []
    for strategy in (FedAvg(), RobustStrategy(FedAvg(), "mean")):
        messages = ask(strategy, before)
        replies = [answer(messages[n], moved(before, n), num_examples=100) for n in NODES[1:]]
        liar = {name: value + 1 if value.ndim else value for name, value in before.items()}
        replies.append(answer(messages[NODES[0]], liar, num_examples=10**7))
        after, _ = strategy.aggregate_train(1, replies)
        moves.append(float((numbers(after)["layer.weight"] - before["layer.weight"]).mean()))
    assert moves[0] > 0.99
    assert moves[1] < 0.35


metric_values = st.one_of(
    st.integers(),
    st.floats(),
    st.lists(st.floats(), max_size=3),
    st.lists(st.integers(), max_size=3),
)
arrays_of_any_kind: st.SearchStrategy[np.ndarray[Any, Any]] = st.sampled_from(
    [
        np.zeros((4, 3), np.float32),
        np.full((4, 3), 1e38, np.float32),
        np.full((4, 3), NAN, np.float32),
        np.zeros((4, 3), np.int8),
        np.zeros(4, np.float16),
        np.zeros((0, 3), np.float32),
        np.asarray(7),
        np.asarray(-(2**63)),
        np.asarray(True),
        np.asarray(1.5, np.float32),
        np.asarray(-np.inf, np.float32),
        np.asfortranarray(np.ones((4, 3), np.float32)),
        np.ones((4, 3), ">f4"),
        np.zeros(3, "M8[s]"),
        np.zeros(2, [("x", "f4")]),
    ]
)
names = st.sampled_from([*model(), "other", ""])


@st.composite
def garbage(draw: st.DrawFn, message: Message) -> Message:
    """Any reply that Flower's types allow."""
    if draw(st.booleans()):
        arrays: dict[str, Array] = dict(record(model()))
    else:
        arrays = {}
    for name, value in draw(st.dictionaries(names, arrays_of_any_kind, max_size=4)).items():
        arrays[name] = Array(value)
    for name, data in draw(st.dictionaries(names, st.binary(max_size=200), max_size=1)).items():
        arrays[name] = Array("float32", (4, 3), draw(st.sampled_from(["numpy.ndarray", "x"])), data)
    keys = st.sampled_from(["num-examples", "loss", ""])
    metrics = draw(st.dictionaries(keys, metric_values, max_size=3))
    records: dict[str, Any] = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)}
    for key in draw(st.sets(st.sampled_from(["arrays", "metrics"]), max_size=2)):
        del records[key]
    if draw(st.booleans()):
        records["config"] = ConfigRecord({"x": b"1"})
    return Message(RecordDict(records), reply_to=message)


@given(data=st.data(), n_bad=st.integers(0, 10), rule=st.sampled_from(["mean", "radius-filter"]))
def test_garbage_never_ends_a_run(data: st.DataObject, n_bad: int, rule: str) -> None:
    before = model()
    strategy = RobustStrategy(FedAvg(), rule)
    messages = ask(strategy, before)
    replies = [data.draw(garbage(messages[node])) for node in NODES[:n_bad]]
    replies += [answer(messages[node], moved(before, node), loss=1.0) for node in NODES[n_bad:]]
    after, metrics = strategy.aggregate_train(1, replies)
    assert metrics is not None
    found = numbers(after)
    assert {n: (v.dtype, v.shape) for n, v in found.items()} == {
        n: (v.dtype, v.shape) for n, v in before.items()
    }
    is_changed = not same(found, before)
    n_dropped = len(strategy.dropped)
    assert n_dropped <= n_bad
    if is_changed:
        assert 10 - n_dropped > n_dropped
    if n_bad < 5 and rule == "radius-filter":  # bounded by the honest majority
        assert metrics["holdfast-model-changed"] == 1
        assert np.abs(found["layer.weight"] - before["layer.weight"]).max() < 2
        assert "loss" not in metrics or metrics["loss"] == 1.0


@given(data=st.data(), n_bad=st.integers(0, 4))
def test_garbage_in_evaluation_is_bounded(data: st.DataObject, n_bad: int) -> None:
    strategy = RobustStrategy(FedAvg())
    grid = LocalGrid(ClientApp(), {node: {} for node in NODES})
    messages = list(strategy.configure_evaluate(1, record(model()), ConfigRecord(), grid))
    replies = [data.draw(garbage(message)) for message in messages[:n_bad]]
    replies += [
        Message(RecordDict({"m": MetricRecord({"num-examples": 5, "loss": 1.0})}), reply_to=message)
        for message in messages[n_bad:]
    ]
    metrics = strategy.aggregate_evaluate(1, replies)
    assert metrics is not None
    assert metrics.get("loss", 1.0) == 1.0
