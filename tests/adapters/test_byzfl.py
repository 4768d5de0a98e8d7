"""The rules called as ByzFL calls its own, and within the real ByzFL."""

import importlib
import importlib.util
import re
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import peers
from torch.utils.data import DataLoader, TensorDataset

from holdfast.adapters.byzfl import VectorRule
from holdfast.aggregators import rules
from holdfast.errors import NonFiniteRowsError
from holdfast.lab.data import fashion_mnist_slice
from holdfast.seeds import stream

needs_byzfl = pytest.mark.skipif(
    importlib.util.find_spec("byzfl") is None, reason="byzfl is not installed"
)

RULES = ["geometric-median", "coordinate-median", "mixing(n_bad=2) | krum(n_bad=2)"]


def byzfl(module: str) -> Any:
    """A module of ByzFL, without the package's own start, which would need torchvision."""
    peers.byzfl("aggregators")
    return importlib.import_module(f"byzfl.{module}")


@pytest.mark.parametrize("text", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_every_kind_of_vectors_gives_the_rule_in_its_own_kind(
    text: str, dtype: torch.dtype
) -> None:
    matrix = torch.randn(9, 5).to(dtype)
    expected, rule = rules.parse(text)(matrix), VectorRule(text)
    for vectors in (matrix, list(matrix), tuple(matrix)):
        found = rule(vectors)
        assert isinstance(found, torch.Tensor)
        assert found.dtype == dtype
        assert torch.equal(found, expected)
    for arrays in (matrix.numpy(), list(matrix.numpy())):
        found = rule(arrays)
        assert isinstance(found, np.ndarray)
        assert found.dtype == matrix.numpy().dtype
        assert np.array_equal(found, expected.numpy())


def test_the_vectors_are_left_as_they_are() -> None:
    vectors = [torch.randn(4) for _ in range(5)]
    before = [vector.clone() for vector in vectors]
    VectorRule("covariance-filter")(vectors)
    assert all(torch.equal(a, b) for a, b in zip(vectors, before, strict=True))


def test_vectors_that_are_not_finite_get_no_weight() -> None:
    vectors = [np.ones(3), np.ones(3), np.array([1.0, np.nan, np.inf])]
    assert np.array_equal(VectorRule()(vectors), np.ones(3))


def test_a_rule_that_draws_uses_its_own_generator() -> None:
    text, vectors = "bucketing(bucket_size=2) | geometric-median", torch.randn(9, 5)
    expected = rules.parse(text)(vectors, generator=stream(3, "buckets"))
    found = VectorRule(text, generator=stream(3, "buckets"))(list(vectors))
    assert torch.equal(found, expected)


def test_wrong_input_is_refused() -> None:
    rule = VectorRule("geometric-median")
    for vectors, message in [
        ([], "an empty list"),
        ("text", "got str"),
        ([[1.0, 2.0], [3.0, 4.0]], "a list of list"),
        ([np.ones(2), torch.ones(2)], "a list of Tensor and ndarray"),
        ([torch.ones(2), torch.ones(3)], "agree on the shape (the first has (2,)), got (3,)"),
        ([torch.ones(2), torch.ones(2).double()], "agree on the dtype"),
        ([torch.ones(2, 2), torch.ones(2, 2)], "vectors of shape (2, 2)"),
        (torch.ones(3), "shape (3,)"),
        (np.ones((2, 2, 2)), "shape (2, 2, 2)"),
    ]:
        with pytest.raises(ValueError, match="`vectors` must.*" + re.escape(message)):
            rule(vectors)
    with pytest.raises(ValueError, match="`rows` must be real floating point"):
        rule([np.ones(2, dtype=np.int64)] * 3)
    with pytest.raises(ValueError, match="at least 7 rows"):
        VectorRule("krum(n_bad=2)")([np.ones(2)] * 3)
    with pytest.raises(ValueError, match=re.escape("TrustedReference(), which needs a reference")):
        VectorRule("trusted-reference")
    with pytest.raises(ValueError, match=re.escape("`generator` must be given for Bucketing(")):
        VectorRule("bucketing(bucket_size=2) | geometric-median")


@needs_byzfl
@pytest.mark.parametrize(
    ("theirs", "arguments", "ours"),
    [
        ("Average", {}, "mean"),
        ("Median", {}, "coordinate-median"),
        ("TrMean", {"f": 3}, "trimmed-mean(n_bad=3)"),
        ("Meamed", {"f": 3}, "mean-around-median(n_bad=3)"),
        ("MDA", {"f": 3}, "minimum-diameter(n_bad=3)"),
        ("MoNNA", {"f": 3, "idx": 4}, "neighbor-mean(n_bad=3, index=4)"),
    ],
)
def test_a_rule_takes_the_place_of_theirs(
    theirs: str, arguments: dict[str, int], ours: str
) -> None:
    """With the vectors of their examples, and the same result."""
    rule = VectorRule(ours)
    their_rule = getattr(byzfl("aggregators.aggregators"), theirs)(**arguments)
    matrix = np.random.default_rng(0).normal(size=(11, 6))
    tensor = torch.tensor(matrix)
    for vectors in (matrix, list(matrix)):
        assert np.allclose(rule(vectors), their_rule(vectors), rtol=1e-6, atol=1e-9)
    for tensors in (tensor, list(tensor)):
        # Theirs computes in float32.
        torch.testing.assert_close(rule(tensors).float(), their_rule(tensors))


@needs_byzfl
def test_their_attack_is_optimized_against_our_rule() -> None:
    honest = torch.randn(12, 20)
    attack = byzfl("attacks.attacks").Optimal_ALittleIsEnough

    def damage(rule: VectorRule) -> float:
        bad = attack(agg=rule, pre_agg_list=[], f=4)(honest)
        return float((rule([*honest, *[bad] * 4]) - honest.mean(0)).norm())

    assert damage(VectorRule("geometric-median")) < 5 < 1000 < damage(VectorRule("mean"))


@needs_byzfl
def test_their_server_trains_with_our_rule() -> None:
    """Their server, clients and attacker on real images; one line is ours."""
    framework = byzfl("fed_framework")
    images = fashion_mnist_slice("train")
    x, y = images.scaled()[:2000].flatten(1), images.labels[:2000]
    test = DataLoader(TensorDataset(x, y), batch_size=500)

    def accuracy(rule: str) -> float:
        torch.default_generator.manual_seed(0)
        both = {"device": "cpu", "model_name": "fc_mnist"}
        schedule = {"learning_rate": 0.1, "milestones": [], "learning_rate_decay": 1.0}
        server = framework.Server(
            both
            | schedule
            | {"optimizer_name": "SGD", "weight_decay": 0.0, "test_loader": test}
            | {"aggregator_info": {"name": "Average", "parameters": {}}, "pre_agg_list": []}
        )
        server.robust_aggregator = VectorRule(rule)
        parts = [
            DataLoader(TensorDataset(x[i::9], y[i::9]), batch_size=32, shuffle=True)
            for i in range(9)
        ]
        training = {
            "loss_name": "NLLLoss",
            "LabelFlipping": False,
            "nb_labels": 10,
            "momentum": 0.0,
        }
        clients = [
            framework.Client(
                both | training | {"training_dataloader": part, "store_per_client_metrics": False}
            )
            for part in parts
        ]
        attacker = framework.ByzantineClient(
            {"f": 4, "name": "InnerProductManipulation", "parameters": {"tau": 50.0}}
        )
        for _ in range(40):
            for client in clients:
                client.set_parameters(server.get_flat_parameters())
                client.compute_gradients()
            honest = [client.get_flat_gradients_with_momentum() for client in clients]
            server.update_model_with_gradients(honest + attacker.apply_attack(honest))
        return float(server.compute_test_accuracy())

    assert accuracy("radius-filter") > 0.6
    with pytest.raises(NonFiniteRowsError):  # all gradients have overflowed
        accuracy("mean")
