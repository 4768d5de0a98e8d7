"""Gradients through the geometric median, against finite differences and a dense reference."""

import pytest
import torch
from torch import Tensor

from holdfast.aggregators import CoordinateMedian, GeometricMedian, Krum
from tests.samples import gaussian

MEDIAN = GeometricMedian(tolerance=1e-14)


def dense_gradient(rows: Tensor, eta: Tensor, incoming: Tensor) -> Tensor:
    """The formula with d x d matrices, at the median in float64."""
    y = MEDIAN(rows.detach().double(), row_weights=eta)
    differences = rows.detach().double() - y
    distances = differences.norm(dim=1)
    units, pulls = differences / distances[:, None], eta / distances
    identity = torch.eye(rows.shape[1], dtype=torch.float64)
    projections = identity - units[:, :, None] * units[:, None, :]
    hessian = (pulls[:, None, None] * projections).sum(0)
    q: Tensor = torch.linalg.pinv(hessian, rtol=1e-9) @ incoming.double()
    gradient: Tensor = pulls[:, None] * (projections @ q)
    return gradient


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(3, 2), (5, 3), (8, 2), (7, 12), (12, 5)])
def test_finite_differences(n: int, d: int, weighted: bool) -> None:
    rows = gaussian(n, d, seed=n + d, dtype=torch.float64).requires_grad_()
    eta = gaussian(1, n, seed=1, dtype=torch.float64)[0].abs() + 0.2 if weighted else None
    assert torch.autograd.gradcheck(
        lambda x: MEDIAN(x, row_weights=eta), rows, eps=1e-5, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("n", [6, 80])
def test_the_dense_reference(n: int, scale: float, dtype: torch.dtype) -> None:
    """80 rows take the streaming solver, at float32's default tolerance."""
    rows = (scale * gaussian(n, 90, dtype=torch.float64)).to(dtype).requires_grad_()
    eta = 1 + 0.1 * gaussian(1, n, seed=1, dtype=torch.float64)[0].abs()
    incoming = gaussian(1, 90, seed=2, dtype=dtype)[0]
    (found,) = torch.autograd.grad(GeometricMedian()(rows, row_weights=eta), rows, incoming)
    expected = dense_gradient(rows, eta / eta.sum(), incoming)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=5e-3, atol=2e-4)
    # A common move of all rows moves the median alike.
    torch.testing.assert_close(found.sum(0), incoming, rtol=1e-3, atol=1e-4)


def test_far_rows_get_little() -> None:
    rows = gaussian(9, 4, dtype=torch.float64)
    rows[:3] *= 1e9
    rows.requires_grad_()
    incoming = torch.ones(4, dtype=torch.float64)
    (found,) = torch.autograd.grad(MEDIAN(rows), rows, incoming)
    eta = torch.full((9,), 1 / 9, dtype=torch.float64)
    torch.testing.assert_close(found, dense_gradient(rows, eta, incoming), rtol=1e-4, atol=1e-8)
    assert float(found[:3].abs().max()) < 1e-8


def test_a_list_of_tensors_as_one_matrix() -> None:
    parts = [gaussian(6, 12, seed=k, dtype=torch.float64).view(6, 3, 4) for k in (0, 1)]
    whole = torch.cat([part.flatten(1) for part in parts], 1).requires_grad_()
    incoming = gaussian(1, 24, seed=2, dtype=torch.float64)[0]
    (expected,) = torch.autograd.grad(MEDIAN(whole), whole, incoming)
    parts[0].requires_grad_()
    (found,) = torch.autograd.grad(MEDIAN(parts), parts[0], incoming)
    torch.testing.assert_close(found, expected[:, :12].view(6, 3, 4))


def test_a_row_that_is_the_median_gets_all() -> None:
    rows = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.1, 0.05]], requires_grad=True)
    incoming = torch.tensor([3.0, -2.0])
    (found,) = torch.autograd.grad(GeometricMedian()(rows), rows, incoming)
    assert torch.equal(found[4], incoming)
    assert not found[:4].any()


def test_equal_rows_share_by_their_weights() -> None:
    rows = gaussian(6, 3, dtype=torch.float64)
    rows[3:] = rows[2]
    rows.requires_grad_()
    eta = torch.tensor([1.0, 1, 1, 1, 2, 3], dtype=torch.float64)
    incoming = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(MEDIAN(rows, row_weights=eta), rows, incoming)
    torch.testing.assert_close(found, torch.outer(eta * (eta.cumsum(0) > 2) / 7, incoming))


def test_nothing_flows_along_a_line_that_holds_all_rows() -> None:
    places = torch.tensor([[-2.0], [-1.0], [1.0], [4.0]], dtype=torch.float64)
    direction = torch.tensor([[0.6, 0.8, 0.0]], dtype=torch.float64)
    rows = (places @ direction).requires_grad_()
    along, across = direction[0], torch.tensor([-0.8, 0.6, 1.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(MEDIAN(rows), rows, along)
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-7)
    (found,) = torch.autograd.grad(MEDIAN(rows), rows, across)
    expected = dense_gradient(rows, torch.full((4,), 0.25, dtype=torch.float64), across)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_get_zeros(value: float) -> None:
    rows = gaussian(7, 5, dtype=torch.float64)
    rows[2, 1] = value
    rows.requires_grad_()
    (found,) = torch.autograd.grad(MEDIAN(rows).sum(), rows)
    others = torch.cat([rows[:2], rows[3:]]).detach().requires_grad_()
    (expected,) = torch.autograd.grad(MEDIAN(others).sum(), others)
    assert not found[2].any()
    torch.testing.assert_close(torch.cat([found[:2], found[3:]]), expected, rtol=1e-5, atol=1e-6)


def test_rows_of_weight_zero_get_zeros() -> None:
    rows = gaussian(7, 5, dtype=torch.float64).requires_grad_()
    eta = torch.tensor([1.0, 1, 0, 1, 1, 0, 1])
    (found,) = torch.autograd.grad(MEDIAN(rows, row_weights=eta).sum(), rows)
    assert not found[eta == 0].any()
    torch.testing.assert_close(found.sum(0), torch.ones(5, dtype=torch.float64))


def test_an_incoming_gradient_of_any_size() -> None:
    rows = gaussian(7, 200).requires_grad_()
    for size in (0.0, 1e-30, 1e-6, 1e6, 1e30):
        incoming = torch.full((200,), size)
        (found,) = torch.autograd.grad(GeometricMedian()(rows), rows, incoming)
        torch.testing.assert_close(found.sum(0), incoming, rtol=1e-4, atol=0)


def test_there_is_no_second_derivative() -> None:
    rows = gaussian(5, 3, dtype=torch.float64).requires_grad_()
    (first,) = torch.autograd.grad(MEDIAN(rows).sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(first.square().sum(), rows)


def test_a_graph_only_where_one_is_asked_for() -> None:
    rows = gaussian(5, 3).requires_grad_()
    assert GeometricMedian()(rows).requires_grad
    assert not GeometricMedian()(rows.detach()).requires_grad
    assert not GeometricMedian().aggregate(rows).vector.requires_grad
    assert not CoordinateMedian()(rows).requires_grad
    assert not Krum(n_bad=1)(rows).requires_grad
    with torch.no_grad():
        assert not GeometricMedian()(rows).requires_grad


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_the_gradient_is_linear_in_the_incoming_one(size: float) -> None:
    rows = (gaussian(6, 4, dtype=torch.float64) + 100).requires_grad_()
    incoming = gaussian(1, 4, 1, torch.float64)[0]
    (plain,) = torch.autograd.grad(GeometricMedian(tolerance=1e-12)(rows), rows, incoming)
    (scaled,) = torch.autograd.grad(GeometricMedian(tolerance=1e-12)(rows), rows, size * incoming)
    torch.testing.assert_close(scaled / size, plain, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_overflow_is_passed_on(value: float) -> None:
    """A gradient scaler must see it, to skip the step."""
    rows = gaussian(5, 3).requires_grad_()
    (found,) = torch.autograd.grad(GeometricMedian()(rows), rows, torch.full((3,), value))
    assert found.isnan().all()


def test_gradcheck_in_general_position() -> None:
    rows = gaussian(6, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(GeometricMedian(tolerance=1e-12), rows)
