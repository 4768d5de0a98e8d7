"""Directions that runs compute for attackers, against gradients of one sample at a time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import holdfast.lab.training._directions as module
import holdfast.lab.training._loop as loop
import holdfast.lab.training._step_parts as parts
import holdfast.lab.training._step_parts as step_parts
from holdfast.lab.config import Threat
from holdfast.lab.data import DataSet, load
from holdfast.lab.models import models
from holdfast.lab.partitions import Shuffled
from holdfast.lab.training import Batches, run
from holdfast.lab.training._directions import N_SAMPLES, column_masks, loss_gradients
from holdfast.lab.training._evaluation import as_input
from holdfast.lab.training._experiment import Experiment
from holdfast.layout import Layout
from holdfast.threats import Adversaries, Attack, AttackContext
from tests.lab.cases import TINY, tiny

pytestmark = pytest.mark.usefixtures("few_images")
BOTH = ("true-gradient", "wrong-labels")


@pytest.fixture
def data() -> DataSet:
    return load("fashion-mnist-slice")


def network() -> nn.Sequential:
    """With everything that a forward pass in train mode would change."""
    tail = [nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 10)]
    whole = nn.Sequential(nn.Conv2d(1, 4, 5, stride=4), *tail)
    return whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def slow_gradient(model: nn.Module, data: DataSet, indices: Tensor, shift: int) -> Tensor:
    """Of the mean loss with labels y + shift, one sample at a time, in float64."""
    parameters = list(model.parameters())
    total = torch.zeros(sum(one.numel() for one in parameters), dtype=torch.float64)
    for i in indices.tolist():
        pixels = (data.train.images[i].float() / 255 - data.mean[0]) / data.deviation[0]
        label = torch.tensor([(int(data.train.labels[i]) + shift) % 10])
        found = torch.autograd.grad(cross_entropy(model(pixels[None, None]), label), parameters)
        total += torch.cat([one.reshape(-1) for one in found]).double()
    return total / len(indices)


def test_gradients_are_those_of_single_samples(data: DataSet) -> None:
    model, indices = network(), torch.arange(0, 6000, 43)
    found = loss_gradients(model, data, BOTH, indices)
    model.eval()
    for shift, name in enumerate(BOTH):
        wanted = slow_gradient(model, data, indices, shift)
        torch.testing.assert_close(found[name].double(), wanted, rtol=1e-4, atol=1e-5)
        alone = loss_gradients(model, data, [name], indices)
        assert list(alone) == [name]
        assert torch.equal(alone[name], found[name])


def test_the_model_stays_as_it_is(data: DataSet) -> None:
    model = network()
    first, *others = model.parameters()
    first.grad = torch.ones_like(first)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    world = torch.get_rng_state()
    found = loss_gradients(model, data, BOTH, torch.arange(150))
    assert not any(gradient.requires_grad for gradient in found.values())
    assert torch.equal(torch.get_rng_state(), world)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())
    assert bool((first.grad == 1).all())
    assert all(one.grad is None for one in others)


def test_samples_depend_on_seed_and_step_and_are_never_trusted() -> None:
    def batches(seed: int) -> Batches:
        return Batches(
            torch.zeros(6000), Shuffled(), n_rows=6, row_size=4, n_trusted=3000, seed=seed
        )

    first = batches(0).direction_indices(3, N_SAMPLES)
    assert first.unique().shape == (2048,)
    assert not set(first.tolist()) & set(batches(0).trusted.tolist())
    assert torch.equal(first, batches(0).direction_indices(3, N_SAMPLES))
    assert not torch.equal(first, batches(0).direction_indices(4, N_SAMPLES))
    assert not torch.equal(first, batches(1).direction_indices(3, N_SAMPLES))
    assert batches(0).direction_indices(0, 10**6).unique().shape == (3000,)


@dataclass(frozen=True, kw_only=True)
class Directed(Attack):
    """Sends the sum of the directions that it needs."""

    directions: tuple[str, ...] = BOTH
    name = "directed"
    aim = "Nothing."

    @property
    def needs_directions(self) -> frozenset[str]:
        return frozenset(self.directions)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        return torch.stack([context.directions[name] for name in self.directions]).sum(0)


def with_attack(attack: Attack, **fields: Any) -> Threat:
    return Threat(attack=attack, adversaries=Adversaries(n_bad=2), **fields)


@pytest.mark.parametrize("names", [BOTH[:1], BOTH[1:], BOTH])
def test_an_attack_gets_what_it_needs_at_every_step_and_nothing_else(
    names: tuple[str, ...], data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spied(model: nn.Module, data: DataSet, wanted: Any, indices: Tensor) -> Any:
        seen.append((sorted(wanted), indices.tolist()))
        return loss_gradients(model, data, wanted, indices)

    monkeypatch.setattr(parts, "loss_gradients", spied)
    config = tiny("mean", "scaled-flip")
    object.__setattr__(config, "threat", with_attack(Directed(directions=names)))
    experiment = Experiment(config, data, torch.device("cpu"))
    for _ in loop.training(experiment, 0):
        pass
    wanted = [experiment.batches.direction_indices(step, N_SAMPLES).tolist() for step in range(5)]
    assert seen == [(sorted(names), indices) for indices in wanted]


def test_no_directions_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for attacks that need none nor where nobody is bad."""

    def refuse(*given: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(parts, "loss_gradients", refuse)
    monkeypatch.setattr(Batches, "direction_indices", refuse)
    nobody = Adversaries(n_bad=0)
    for i, config in enumerate((
        TINY, tiny("mean", "scaled-flip"), tiny("mean", "backdoor"), tiny("mean", "huddle"),
        tiny("mean", "huddle(direction='wrong-labels')", nobody),
    )):  # fmt: skip
        assert run(config, tmp_path / str(i)).n_steps == 5
    with pytest.raises(AssertionError):
        run(tiny("mean", "huddle(direction='wrong-labels')"), tmp_path / "needed")


def test_unknown_directions_are_refused_before_the_run_starts(data: DataSet) -> None:
    config = tiny("mean", "scaled-flip")
    attack = Directed(directions=("drift", "way", "trap", "true-gradient"))
    object.__setattr__(config, "threat", with_attack(attack))
    with pytest.raises(
        ValueError,
        match=r"^`attack` must need no directions but 'true-gradient', 'wrong-labels', "
        r"'first-layer', 'class' and 'drift', got Directed\(.*\), which needs 'trap', 'way'\.$",
    ):
        Experiment(config, data, torch.device("cpu"))
    module.check_directions(None)


def test_masks_mark_the_columns_of_a_layer_and_of_a_class() -> None:
    """With gradients that are not zero there, and nowhere else."""
    model = network()
    layout = Layout(model)
    masks = column_masks(layout, ["class", "first-layer", "drift"])
    assert sorted(masks) == ["class", "first-layer"]
    linear = model[-1]
    assert isinstance(linear, nn.Linear)
    marked = dict(zip(layout.names, layout.split(masks["first-layer"]), strict=True))
    assert bool((marked.pop("0.weight") == 1).all())
    assert all(bool((part == 0).all()) for part in marked.values())
    # The score of class 0 depends on nothing else in the last layer, and on these columns.
    score = model(torch.rand(4, 1, 28, 28))[:, 0].sum()
    assert isinstance(linear, nn.Linear)
    weight, bias = torch.autograd.grad(score, [linear.weight, linear.bias])
    by_name = dict(zip(layout.names, layout.split(masks["class"]), strict=True))
    assert torch.equal(
        by_name["5.weight"], (weight != 0).any(1, keepdim=True).expand(10, 144) * 1.0
    )
    assert torch.equal(by_name["5.bias"], (bias != 0) * 1.0)
    assert float(masks["class"].sum()) == 145


@pytest.mark.parametrize("model", ["lenet", "mlp", "logistic-regression", "tiny-cnn"])
def test_every_model_has_a_first_layer_and_classes(model: str) -> None:
    layout = Layout(models[model]())
    masks = column_masks(layout, ["class", "first-layer"])
    assert float(masks["first-layer"].sum()) == layout.sizes[0]
    assert float(masks["class"].sum()) == layout.shapes[-2][1] + 1


def test_the_bad_model_has_learned_wrong_labels(data: DataSet) -> None:
    """It is found again from the configuration, whatever the run has done in between."""
    attack = Directed(directions=("drift",))
    config = tiny("mean", "scaled-flip", model="mlp")
    object.__setattr__(config, "threat", with_attack(attack))
    experiment = Experiment(config, data, torch.device("cpu"))
    start = Layout(experiment.model).values()
    world = torch.get_rng_state()
    bad = experiment.bad_parameters
    assert torch.equal(torch.get_rng_state(), world)
    assert torch.equal(Layout(experiment.model).values(), start)
    mask = torch.ones(config.n_rows, dtype=torch.bool)
    drift = step_parts.attack_directions(experiment, mask, 0)["drift"]
    assert torch.equal(drift, start - bad)
    for _ in loop.training(experiment, 0):
        pass
    later = Experiment(config, data, torch.device("cpu"))
    later.load_state_dict(experiment.state_dict())
    assert torch.equal(later.bad_parameters, bad)
    now = Layout(later.model).values()
    assert torch.equal(step_parts.attack_directions(later, mask, 5)["drift"], now - bad)
    Layout(later.model).write_values(bad)
    images, labels = data.test.batch(torch.arange(300))
    with torch.no_grad():
        predicted = later.model(as_input(data, images)).argmax(1)
    assert float((predicted == (labels + 1) % 10).double().mean()) > 0.6
    assert float((predicted == labels).double().mean()) < 0.1
