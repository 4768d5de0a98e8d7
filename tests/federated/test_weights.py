"""Weights of clients by what they claim: capped, and never half of the weight for a minority."""

import numpy as np
import pytest
import torch
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from holdfast.federated import RobustStrategy
from holdfast.federated._replies import capped_weights, median_metrics
from tests.federated.cases import NODES, answer, ask, model, moved, numbers

claims = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=30)


@given(claims=claims, max_weight=st.floats(1, 50))
def test_no_minority_has_half_of_the_weight(claims: list[float], max_weight: float) -> None:
    weights = capped_weights(claims, max_weight)
    n = len(claims)
    most = weights.sort(descending=True).values[: (n - 1) // 2].sum()
    assert most < 0.5 * weights.sum()
    median = sorted(claims)[(n - 1) // 2]
    assert weights.max() <= max_weight * median * (1 + 1e-12)
    # What is below the largest weight is what was claimed.
    given = torch.tensor(claims, dtype=torch.float64)
    is_capped = weights < given
    assert torch.equal(weights[~is_capped], given[~is_capped])
    assert weights[is_capped].unique().numel() <= 1


def test_equal_claims_stay_as_they_are_and_small_sites_stay_small() -> None:
    assert capped_weights([7.0] * 9, 3.0).tolist() == [7.0] * 9
    assert capped_weights([100.0] * 19 + [6e6], 1.0).tolist() == [100.0] * 20
    weights = capped_weights([3000.0, 2500.0, 1500.0, 800.0, 50.0], 3.0)
    assert weights[-2:].tolist() == [800.0, 50.0]
    assert weights[:3].unique().numel() == 1
    assert 800 < weights[0] < 850


def test_a_small_site_with_a_large_claim_moves_the_model_little() -> None:
    before, moves = model(), []
    for strategy in (FedAvg(), RobustStrategy(FedAvg(), "mean")):
        messages = ask(strategy, before)
        models = {node: moved(before, node) for node in NODES}
        for name in ("layer.weight", "layer.bias"):
            models[NODES[0]][name] = before[name] + np.asarray(5.0, before[name].dtype)
        replies = [
            answer(messages[n], models[n], num_examples=10**7 if n == NODES[0] else 500)
            for n in NODES
        ]
        after, _ = strategy.aggregate_train(1, replies)
        moves.append(float(np.mean(numbers(after)["layer.weight"] - before["layer.weight"])))
    plain, ours = moves
    assert plain == pytest.approx(5.0, abs=0.01)
    assert ours < 1.5  # the mean bounds nothing else, and three shares of eleven are at most this


@pytest.mark.parametrize("rule", ["radius-filter", "geometric-median"])
def test_a_minority_cannot_claim_its_way_to_a_majority(rule: str) -> None:
    before = model()
    strategy = RobustStrategy(FedAvg(), rule)
    messages = ask(strategy, before)
    models = {
        node: moved(before, node, scale=-50.0 if node in NODES[:4] else 0.1) for node in NODES
    }
    replies = [
        answer(messages[n], models[n], num_examples=10**7 if n in NODES[:4] else 500) for n in NODES
    ]
    after, _ = strategy.aggregate_train(1, replies)
    change = numbers(after)["layer.weight"] - before["layer.weight"]
    assert -0.2 < change.min() <= change.max() < 0.2
    assert sum(strategy.weights[node] for node in NODES[:4]) < 0.5


def test_a_rule_by_weight_counts_a_large_site_for_more() -> None:
    before = model()
    strategy = RobustStrategy(FedAvg(), "mean")
    messages = ask(strategy, before)
    replies = [
        answer(messages[n], moved(before, n), num_examples=100 * (1 + i // 5))
        for i, n in enumerate(NODES)
    ]
    strategy.aggregate_train(1, replies)
    small, large = strategy.weights[NODES[0]], strategy.weights[NODES[9]]
    assert 1.1 < large / small <= 2.0


def test_medians_of_metrics_are_those_of_most_clients() -> None:
    weights = torch.tensor([1.0, 1.0, 3.0, 1.0], dtype=torch.float64)
    metrics = [
        {"loss": [1.0], "each": [1.0, 2.0], "rare": [1.0]},
        {"loss": [2.0], "each": [3.0, 1.0], "rare": [2.0]},
        {"loss": [3.0], "each": [2.0, 5.0]},
        {"loss": [4.0], "each": [9.0]},
    ]
    assert median_metrics(metrics, weights) == {"loss": 3.0, "each": [2.0, 5.0]}
