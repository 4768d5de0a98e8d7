"""The models are what the paper says, and come from the generator they are given."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from holdfast.lab.models import lenet, resnet18
from holdfast.seeds import stream


@pytest.mark.parametrize(
    ("build", "shape", "n_parameters"), [(lenet, (2, 1, 28, 28), 1_163_978), (resnet18, (2, 3, 32, 32), 11_173_962)]
)
def test_shapes_and_sizes(build: Callable[..., nn.Module], shape: tuple[int, ...], n_parameters: int) -> None:
    model = build(generator=stream(0, "model"))
    assert sum(parameter.numel() for parameter in model.parameters()) == n_parameters
    assert model(torch.zeros(shape)).shape == (2, 10)


def test_parameters_come_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (next(lenet(generator=stream(seed, "model")).parameters()) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_generator_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`generator` must be a torch.Generator, got int\."):
        lenet(generator=3)  # type: ignore[arg-type]
