"""The models are what the paper says, and come from the generator they are given."""

from typing import Any

import pytest
import torch
from torch import nn

from holdfast.lab.models import lenet, logistic_regression, mlp, models, resnet18, tiny_cnn
from holdfast.seeds import stream

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
SIZES = [
    ("lenet", GREY, 1_163_978),
    ("tiny-cnn", GREY, 412),
    ("mlp", GREY, 101_770),
    ("logistic-regression", GREY, 7_850),
    ("resnet-18", COLOUR, 11_173_962),
    ("resnet-18", GREY, 11_173_962 - 2 * 64 * 9),
    ("logistic-regression", COLOUR, 30_730),
    ("mlp", COLOUR, 3072 * 128 + 128 + 1290),
    ("lenet", COLOUR, 64 * 76 + 64 * 1601 + 64 * 25 * 1024 + 1024 + 10_250),
    ("tiny-cnn", COLOUR, 84 + 3 * 84 + 3 * 4 * 10 + 10),
]
every_model = pytest.mark.parametrize("name", sorted(models))


@pytest.mark.parametrize(("name", "shape", "n_parameters"), SIZES, ids=str)
def test_shapes_and_sizes(name: str, shape: tuple[int, int, int], n_parameters: int) -> None:
    model = models[name](shape=shape, generator=stream(0, "model"))
    assert sum(parameter.numel() for parameter in model.parameters()) == n_parameters
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_default_shapes() -> None:
    assert {size[0] for size in SIZES} == set(models)
    for build, shape in (
        (lenet, GREY),
        (logistic_regression, GREY),
        (mlp, GREY),
        (tiny_cnn, GREY),
        (resnet18, COLOUR),
    ):
        assert build()(torch.zeros(2, *shape)).shape == (2, 10)


@every_model
def test_parameters_come_from_the_generator_alone(name: str) -> None:
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
    shape = COLOUR if name == "resnet-18" else GREY
    images = torch.randn(4, *shape, generator=stream(0, "images"))
    nn.functional.cross_entropy(model(images), torch.arange(4)).backward()
    assert all(
        parameter.grad is not None and bool((parameter.grad != 0).any())
        for parameter in model.parameters()
    )


@pytest.mark.parametrize("name", ["tiny-cnn", "lenet"])
@pytest.mark.parametrize("side", [16, 17, 31, 33])
def test_odd_sizes(name: str, side: int) -> None:
    assert models[name](shape=(2, side, side + 1))(torch.zeros(1, 2, side, side + 1)).shape == (
        1,
        10,
    )


@every_model
@pytest.mark.parametrize(
    "shape",
    [
        (28, 28),
        [1, 28, 28],
        (0, 28, 28),
        (1, 0, 28),
        (1, 28, 1.5),
        (1, True, 28),
        None,
        "abc",
        (1, 28, 28, 1),
    ],
    ids=str,
)
def test_wrong_shapes_are_refused(name: str, shape: Any) -> None:
    with pytest.raises(ValueError, match=r"^`shape(\[\d\])?` must be .*, got .*\.$"):
        models[name](shape=shape)


def test_images_too_small_for_lenet_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^`shape\[1\]` must be a whole number of at least 16, got 15\.$"
    ):
        lenet(shape=(1, 15, 28))


@every_model
def test_a_generator_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"`generator` must be a torch.Generator, got int\."):
        models[name](generator=3)  # type: ignore[arg-type]
