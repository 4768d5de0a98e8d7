"""Norms of vectors whose squares leave the range of their dtype."""

import pytest
import torch

from holdfast.geometry import length


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e30, 1e-30, 1e-37])
def test_any_size(dtype: torch.dtype, size: float) -> None:
    assert length(torch.full((16,), size, dtype=dtype)) == pytest.approx(4 * size, rel=1e-5)


def test_edges() -> None:
    assert length(torch.full((4,), 1e200, dtype=torch.float64)) == pytest.approx(2e200)
    assert length(torch.zeros(5)) == 0.0
    assert length(torch.tensor([1.0, float("inf")])) == float("inf")
    assert not length(torch.tensor([1.0, float("nan")])) < float("inf")
