"""Models have the sizes the paper states and draw their parameters from the given generator."""

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from holdfast.lab.config import Config
from holdfast.lab.models import (
    lenet,
    logistic_regression,
    mlp,
    models,
    resnet_18,
    tiny_cnn,
)
from holdfast.lab.optimizers import Sgd
from holdfast.lab.own_models import architecture
from holdfast.lab.training import run, trained_model
from holdfast.seeds import stream

GRAY, COLOR = (1, 28, 28), (3, 32, 32)
SIZES = [
    ("lenet", GRAY, 1_163_978),
    ("tiny-cnn", GRAY, 412),
    ("mlp", GRAY, 101_770),
    ("small-mlp", GRAY, 50_890),
    ("small-cnn", COLOR, 19_466),
    ("small-cnn", GRAY, 160 + 4_640 + 9_248 + 32 * 9 * 10 + 10),
    ("logistic-regression", GRAY, 7_850),
    ("resnet-18", COLOR, 11_173_962),
    ("resnet-18", GRAY, 11_173_962 - 2 * 64 * 9),
    ("logistic-regression", COLOR, 30_730),
    ("mlp", COLOR, 3072 * 128 + 128 + 1290),
    ("lenet", COLOR, 64 * 76 + 64 * 1601 + 64 * 25 * 1024 + 1024 + 10_250),
    ("tiny-cnn", COLOR, 84 + 3 * 84 + 3 * 4 * 10 + 10),
]
every_model = pytest.mark.parametrize("name", sorted(models))


def test_shapes_and_sizes() -> None:
    for name, shape, expected in SIZES:
        model = models[name](shape=shape, generator=stream(0, "model"))
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        assert n_parameters == expected, (name, shape)
        assert model(torch.zeros(2, *shape)).shape == (2, 10), (name, shape)


def test_default_shapes() -> None:
    assert {size[0] for size in SIZES} == set(models)
    for build in (lenet, logistic_regression, mlp, tiny_cnn):
        assert build()(torch.zeros(2, *GRAY)).shape == (2, 10)
    assert resnet_18()(torch.zeros(2, *COLOR)).shape == (2, 10)


@every_model
def test_parameters_come_from_the_generator_only(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (
        list(models[name](generator=stream(seed, "model")).parameters()) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True) if a.ndim > 1)


@every_model
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = models[name](generator=stream(0, "model")).train()
    shape = COLOR if name in ("resnet-18", "small-cnn") else GRAY
    images = torch.randn(4, *shape, generator=stream(0, "images"))
    nn.functional.cross_entropy(model(images), torch.arange(4)).backward()
    assert all(
        parameter.grad is not None and bool((parameter.grad != 0).any())
        for parameter in model.parameters()
    )


def test_odd_sizes() -> None:
    for name, side in itertools.product(("tiny-cnn", "lenet"), (16, 17, 31, 33)):
        shape = (2, side, side + 1)
        assert models[name](shape=shape)(torch.zeros(1, *shape)).shape == (1, 10), (name, side)


WRONG_SHAPES: list[Any] = [
    *([1, 28, 28], (0, 28, 28), (1, 0, 28), (1, 28, 1.5), (1, True, 28)),
    *(None, "abc", ()),
]
FLAT = ("logistic-regression", "mlp", "small-mlp")


@every_model
def test_wrong_shapes_are_refused(name: str) -> None:
    for shape in WRONG_SHAPES:
        with pytest.raises(ValueError, match=r"^`shape(\[\d\])?` must be .*, got .*\.$"):
            models[name](shape=shape)


def test_samples_of_any_shape_and_number_of_classes_suit_models_without_convolutions() -> None:
    for name, shape in itertools.product(models, ((13,), (4, 5), (2, 3, 4, 5))):
        if name in FLAT:
            assert models[name](shape=shape, n_classes=3)(torch.zeros(2, *shape)).shape == (2, 3)
        else:
            with pytest.raises(ValueError, match=r"`shape` must be \(channels, height, width\).*"):
                models[name](shape=shape)


def test_every_model_has_as_many_outputs_as_classes() -> None:
    for name in models:
        assert models[name](shape=COLOR, n_classes=7)(torch.zeros(2, *COLOR)).shape == (2, 7)


def test_images_too_small_for_lenet_are_refused() -> None:
    message = r"^`shape` must be \(channels, height, width\), 16 or more, .*, got \(1, 15, 28\)\.$"
    with pytest.raises(ValueError, match=message):
        lenet(shape=(1, 15, 28))


@every_model
def test_a_number_instead_of_a_generator_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"`generator` must be a torch.Generator, got int\."):
        models[name](generator=3)  # type: ignore[arg-type]


OWN = """
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.BatchNorm1d(12), nn.Linear(12, 10))

def number():
    return 3

def for_color():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))

def flat():
    return nn.Flatten(0)

def of_seven():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 7))

def broken():
    raise RuntimeError("no luck")

def needy(width):
    return nn.Linear(width, 10)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_networks.py").write_text(OWN)
    (tmp_path / "bad_networks.py").write_text("def network(:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)


@pytest.mark.usefixtures("own")
def test_a_function_of_the_users_is_a_model(tmp_path: Path) -> None:
    build = architecture("own_networks:network")
    first, again = (build(generator=stream(0, "model")) for _ in range(2))
    assert first.training
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    config = Config(model="own_networks:network", n_rows=4, n_steps=30, optimizer=Sgd(lr=0.1))
    record = run(config, tmp_path / "run")
    assert record.accuracy is not None
    assert record.accuracy > 0.5
    assert isinstance(trained_model(tmp_path / "run"), nn.Sequential)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:network", "No module named 'nowhere'"),
        ("own_networks:netwrok", r"own_networks.py, got 'netwrok' \(did you mean 'network'\?\)"),
        ("own_networks:number", "be a torch.nn.Module, returned by own_networks:number, got int"),
        ("own_networks:broken", r"broken\(\) without arguments, got RuntimeError \(no luck\)"),
        ("own_networks:needy", r"needy\(\) without arguments, got TypeError \("),
        ("own_networks:for_color", r"must take samples \[b, 1, 28, 28\] and return \[b, 10\]"),
        ("own_networks:flat", r"a score per class, got \[1568\] of own_networks:flat"),
        ("own_networks:of_seven", r"a score per class, got \[2, 7\] of own_networks:of_seven"),
        ("bad_networks:network", r"imported \(bad_networks\), got SyntaxError \("),
    ],
)
def test_what_is_no_model_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        architecture(name)(shape=GRAY, generator=stream(0, "model"))


def test_a_record_with_a_function_is_read_without_it() -> None:
    assert Config(model="package_that_is_gone.module:function").model.endswith("function")
    for name in ("package:", ":function", "a b:c", "x:y:z"):
        with pytest.raises(ValueError, match="`model` must be one of"):
            Config(model=name)
