"""Coordinates of parameters: flatten and split, and gradients written as by a backward pass."""

import pytest
import torch
from torch import Tensor, nn

from holdfast import Layout, RobustStep
from holdfast.aggregators import Mean
from holdfast.geometry import DenseRows
from tests.samples import gaussian


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 5, bias=False)
    )


def test_flatten_and_split_undo_each_other() -> None:
    layout = Layout(model())
    assert layout.d == sum(parameter.numel() for parameter in model().parameters())
    vector = torch.arange(float(layout.d))
    pieces = layout.split(vector)
    assert [piece.shape for piece in pieces] == list(layout.shapes)
    assert layout.flatten(pieces).equal(vector)
    assert pieces[0].data_ptr() == vector.data_ptr()  # views


def test_rows_are_read_alike_from_a_matrix_and_from_parameters() -> None:
    layout = Layout(model())
    matrix = gaussian(4, layout.d)
    parts = [
        part.reshape(4, *shape)
        for part, shape in zip(
            torch.split(matrix, list(layout.sizes), dim=1), layout.shapes, strict=True
        )
    ]
    assert layout.rows(matrix).sections == layout.rows(parts).sections == layout.sizes
    weights = torch.linspace(-1, 1, 4, dtype=torch.float64)
    torch.testing.assert_close(
        layout.rows(matrix).combine(weights), layout.rows(parts).combine(weights)
    )


def test_the_gradient_is_that_of_a_backward_pass() -> None:
    """The mean of per-example rows, written by a step, equals autograd's gradient, also added."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    inputs = gaussian(6, 4)
    layout, rows = Layout(network), []
    for example in inputs:
        loss = network(example).square().sum()
        rows.append(layout.flatten(torch.autograd.grad(loss, layout.parameters)))
    network(inputs).square().sum(1).mean().backward()
    expected = [
        parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None
    ]
    network.zero_grad()
    step = RobustStep(Mean())
    for times in (1, 2):
        result = step.backward(layout.rows(torch.stack(rows)))
        for parameter, grad in zip(network.parameters(), expected, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, times * grad)
    parameter = next(network.parameters())
    assert parameter.grad is not None
    parameter.grad.zero_()
    # The direction does not share the storage of the gradient.
    assert bool(result.direction[:12].abs().sum() > 0)


def test_frozen_and_shared_parameters() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    first.bias.requires_grad_(False)
    layout = Layout(nn.Sequential(first, second))
    assert layout.names == ("0.weight", "1.bias")
    layout.write_gradient(torch.ones(layout.d))
    assert first.bias.grad is None


def test_dtype_and_memory_format_are_the_parameters() -> None:
    network = nn.Conv2d(4, 4, 3).to(torch.bfloat16)
    network.weight = nn.Parameter(network.weight.detach().to(memory_format=torch.channels_last))
    layout = Layout(network)
    layout.write_gradient(torch.ones(layout.d))
    assert network.weight.grad is not None
    assert network.weight.grad.dtype == torch.bfloat16
    assert network.weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_parameters_with_or_without_names() -> None:
    weights = [torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)]
    assert Layout(weights).names == ("parameter 0", "parameter 1")
    assert Layout([("a", weights[0]), ("b", weights[1])]).names == ("a", "b")
    assert repr(Layout(weights)) == "Layout(2 parameters, d=5)"


@pytest.mark.parametrize(
    "given",
    [torch.zeros(3, requires_grad=True), 5, [3], "model", [("a", "b", "c")], [(1, torch.zeros(1))]],
    ids=str,
)
def test_what_is_no_model_is_refused(given: object) -> None:
    with pytest.raises(
        ValueError, match=r"^`parameters` must be a model or its parameters, got [\w, ]+\.$"
    ):
        Layout(given)  # type: ignore[arg-type]


def test_bad_shapes_are_named() -> None:
    layout = Layout(nn.Linear(3, 2))
    with pytest.raises(
        ValueError, match=r"^`parameters` must hold at least one that needs a gradient, got none\.$"
    ):
        Layout(nn.Linear(3, 2).requires_grad_(False))
    with pytest.raises(
        ValueError,
        match=r"^`rows` must have shape \[n, 8\], one column per coordinate .*, got \(4, 7\)\.$",
    ):
        layout.rows(torch.zeros(4, 7))
    with pytest.raises(
        ValueError,
        match=r"^`rows` must have the parameters' shapes \[\(2, 3\), \(2,\)\], got \[\(2, 3\)\]\.$",
    ):
        layout.rows([torch.zeros(4, 2, 3)])
    with pytest.raises(
        ValueError,
        match=r"^`rows` must be a tensor \[n, d\] or a list of tensors \[n, ...\], got int\.$",
    ):
        layout.rows([1, 2])  # type: ignore[list-item]
    with pytest.raises(
        ValueError, match=r"^`tensors` must be tensors, one per parameter, got \['int'\]\.$"
    ):
        layout.flatten([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"^`vector` must have shape \(8,\)"):
        layout.split(torch.zeros(9))
    with pytest.raises(ValueError, match=r"^`tensors` must have the parameters' shapes"):
        layout.flatten([torch.zeros(2, 3)])
    with pytest.raises(
        ValueError,
        match=r"^`rows` must have the columns of their layout, \(6, 2\), got \[5, 3\]\.$",
    ):
        DenseRows([torch.zeros(4, 5), torch.zeros(4, 3)], layout=layout)
    with pytest.raises(
        ValueError, match=r"^`rows` must have the columns of their layout, \(6, 2\), got \[6\]\.$"
    ):
        DenseRows(torch.zeros(4, 6), layout=layout)


def test_a_backward_needs_a_layout() -> None:
    rows: list[DenseRows | Tensor] = [DenseRows(torch.zeros(4, 7)), torch.zeros(4, 7)]
    for given in rows:
        with pytest.raises(
            ValueError,
            match=r"^`rows` must have a layout \(use `Layout\(model\).rows\(...\)`\), got",
        ):
            RobustStep(Mean()).backward(given)  # type: ignore[arg-type]
