"""The rules within the real TorchJD."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchjd.aggregation import GramianWeightedAggregator
from torchjd.aggregation import Krum as TheirKrum
from torchjd.autogram import Engine
from torchjd.autojac import backward, jac_to_grad, mtl_backward

from holdfast.adapters.torchjd import RuleAggregator, RuleWeighting
from holdfast.aggregators import CallArguments, Krum
from holdfast.errors import NonFiniteRowsError
from holdfast.lab.data import fashion_mnist_slice
from holdfast.seeds import stream
from tests.aggregators.cases import CASES, Case, N

CALLABLE = [case for case in CASES if case.rule.needs <= {"generator"}]


@pytest.mark.parametrize("case", CALLABLE, ids=str)
def test_an_aggregator_is_its_rule(case: Case) -> None:
    jacobian, rule = case.rows(N, 7), case.rule
    arguments: CallArguments = {}
    if "generator" in rule.takes:
        arguments["generator"] = stream(0, "draws")
    found = RuleAggregator(case.text, generator=stream(0, "draws"))(jacobian)
    assert torch.equal(found, rule(jacobian, **arguments))


@pytest.mark.parametrize(
    "case", [case for case in CALLABLE if not case.rule.reads_columns], ids=str
)
def test_a_weighting_within_torchjd_is_its_rule(case: Case) -> None:
    jacobian = case.rows(N, 7).double()
    aggregator = GramianWeightedAggregator(RuleWeighting(case.text, generator=stream(0, "draws")))
    expected = RuleAggregator(case.text, generator=stream(0, "draws"))(jacobian)
    torch.testing.assert_close(aggregator(jacobian), expected)


def test_weights_have_the_dtype_of_the_gramian() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert RuleWeighting("krum(n_bad=1)")(torch.eye(5, dtype=dtype)).dtype == dtype


def test_krum_agrees_with_theirs() -> None:
    """Theirs adds distances, ours (as the paper) their squares: few draws tell them apart."""
    same = 0
    for _ in range(50):
        jacobian = torch.cat([torch.randn(8, 5), 30 + torch.randn(2, 5)])
        ours, theirs = RuleAggregator(Krum(n_bad=2))(jacobian), TheirKrum(2)(jacobian)
        same += torch.equal(ours, theirs)
    assert 35 <= same < 50


class Images:
    """A linear model of real images, whose loss per image is an objective."""

    def __init__(self) -> None:
        images = fashion_mnist_slice("train")
        self.x, self.y = images.scaled()[:2000].flatten(1), images.labels[:2000]
        self.model = nn.Linear(784, 10)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def losses(self, step: int, n_bad: int) -> Tensor:
        """The losses [20] of slices of the batch; those of `n_bad` slices are turned around."""
        chosen = torch.arange(200 * step, 200 * (step + 1)) % len(self.x)
        each = cross_entropy(self.model(self.x[chosen]), self.y[chosen], reduction="none")
        losses = each.reshape(20, 10).mean(1)
        signs = torch.ones(20)
        signs[:n_bad] = -50.0
        return signs * losses

    def accuracy(self) -> float:
        with torch.no_grad():
            return float((self.model(self.x).argmax(1) == self.y).float().mean())


def trained_by_jacobian(rule: str, n_bad: int) -> float:
    images = Images()
    for step in range(20):
        backward(images.losses(step, n_bad))
        jac_to_grad(images.model.parameters(), RuleAggregator(rule))
        images.optimizer.step()
        images.optimizer.zero_grad()
    return images.accuracy()


def trained_by_gramian(rule: str, n_bad: int) -> float:
    images = Images()
    engine, weighting = Engine(images.model, batch_dim=None), RuleWeighting(rule)
    for step in range(20):
        losses = images.losses(step, n_bad)
        losses.backward(weighting(engine.compute_gramian(losses)))
        images.optimizer.step()
        images.optimizer.zero_grad()
    return images.accuracy()


@pytest.mark.parametrize("train", [trained_by_jacobian, trained_by_gramian])
def test_a_rule_trains_through_torchjd_where_the_mean_does_not(
    train: Callable[[str, int], float],
) -> None:
    clean = train("mean", 0)
    assert clean > 0.65
    assert train("mean", 8) < 0.3
    assert train("covariance-filter", 8) > clean - 0.05
    assert train("radius-filter", 8) > clean - 0.05


def test_a_rule_in_multi_task_learning() -> None:
    """Five tasks share the features; the loss of one of them is broken from the start."""

    def shared_loss(rule: str) -> float:
        torch.default_generator.manual_seed(0)
        x = torch.randn(64, 8)
        targets = [x @ (torch.ones(8, 1) + 0.1 * torch.randn(8, 1)) for _ in range(5)]
        shared = nn.Linear(8, 16)
        heads = [nn.Linear(16, 1) for _ in range(5)]
        parameters = [*shared.parameters(), *(p for head in heads for p in head.parameters())]
        optimizer = torch.optim.SGD(parameters, lr=0.05)
        for _ in range(60):
            features = shared(x)
            errors = [
                (head(features) - target).square().mean()
                for head, target in zip(heads, targets, strict=True)
            ]
            mtl_backward([*errors[:4], -300 * errors[4].clamp(max=100)], features=features)
            jac_to_grad(shared.parameters(), RuleAggregator(rule))
            # The head of the broken task is its own; it must not run away.
            heads[4].zero_grad()
            optimizer.step()
            optimizer.zero_grad()
        return float(sum(error.item() for error in errors[:4]) / 4)

    assert shared_loss("radius-filter") < 1.0
    with pytest.raises(NonFiniteRowsError):  # all gradients have overflowed
        shared_loss("mean")


def test_an_objective_that_is_not_finite_gets_no_weight() -> None:
    jacobian = torch.ones(5, 3)
    jacobian[2, 1] = torch.nan
    assert torch.equal(RuleAggregator()(jacobian), torch.ones(3))


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("`rule` must read inner products or lengths")):
        RuleWeighting("coordinate-median")
    with pytest.raises(ValueError, match=r"TrustedReference.* needs a reference"):
        RuleAggregator("trusted-reference")
    with pytest.raises(ValueError, match=r"Zeno.* needs a score"):
        RuleWeighting("zeno(n_bad=1)")
    with pytest.raises(ValueError, match=re.escape("`generator` must be given for Sketched(")):
        RuleAggregator("sketched | geometric-median")
    with pytest.raises(ValueError, match=re.escape("`generator` must be a torch.Generator")):
        RuleAggregator(generator=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`rule` must be an Aggregator, got float"):
        RuleAggregator(0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tensor of dimension 2"):
        RuleAggregator()(torch.ones(3))
    with pytest.raises(ValueError, match="at least 7 rows"):
        RuleAggregator("krum(n_bad=2)")(torch.ones(5, 3))
    for gramian in (torch.ones(3), torch.ones(2, 3), torch.full((3, 3), torch.nan)):
        with pytest.raises(ValueError, match="`gram` must"):
            RuleWeighting()(gramian)


def test_texts() -> None:
    assert repr(RuleAggregator("krum(n_bad=2)")) == "RuleAggregator(Krum(n_bad=2))"
    assert str(RuleAggregator("krum(n_bad=2)")) == "Krum(n_bad=2)"
    assert repr(RuleWeighting("krum(n_bad=2)")) == "RuleWeighting(Krum(n_bad=2))"
