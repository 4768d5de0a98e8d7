"""The spread of the majority of rows."""

import pytest
import torch

from holdfast.geometry import half_weight_radii
from tests.samples import gaussian


@pytest.mark.parametrize("n", [1, 2, 3, 8, 51])
@pytest.mark.parametrize("weight", [1.0, 1 / 3])
def test_radii_of_equal_weights_hold_the_smallest_majority(n: int, weight: float) -> None:
    distances = gaussian(6, n).abs().double()
    distances[:, ::3] = 0.5  # ties
    found = half_weight_radii(distances, torch.full((n,), weight, dtype=torch.float64))
    expected = [sorted(row)[n // 2] for row in distances.tolist()]
    assert found.tolist() == expected


@pytest.mark.parametrize("n", [2, 3, 8, 51])
def test_weights_that_are_nearly_equal_have_the_same_radii(n: int) -> None:
    distances = gaussian(6, n).abs().double()
    equal = torch.full((n,), 1.0, dtype=torch.float64)
    nearly = equal.clone()
    nearly[0] += 1e-14
    assert torch.equal(half_weight_radii(distances, equal), half_weight_radii(distances, nearly))
