"""Rows from ordinary backward passes."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from holdfast.sources import Accumulated
from tests.oracle.gradients import by_loop
from tests.sources.cases import CASES, matrix


def test_rows_are_the_gradients_of_the_passes() -> None:
    model, x, y = CASES[2].make()
    source = Accumulated(model, n_rows=3)
    for step in range(2):
        for i, (part, labels) in enumerate(zip(x.chunk(3), y.chunk(3), strict=True)):
            cross_entropy(model(part), labels).backward()
            rows = source()
            assert (rows is None) == (i < 2)
            assert all(parameter.grad is None for parameter in model.parameters())
        assert rows is not None
        assert rows.layout is source.layout
        expected = by_loop(model, cross_entropy, x, y, 3)
        torch.testing.assert_close(matrix(rows), expected, msg=f"step {step}")


def test_parameters_that_a_pass_did_not_reach_have_zeros() -> None:
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    source = Accumulated(model, n_rows=2)
    both = torch.eye(2).repeat_interleave(3, dim=1)
    # The second time, the buffer of the rows holds other values.
    for layers, expected in (([0, 1], both), ([1, 0], both.flip(0))):
        for i in layers:
            model[i](torch.ones(1, 2)).sum().backward()
            rows = source()
        assert rows is not None
        assert torch.equal(matrix(rows), expected)


def test_a_call_without_a_backward_pass_is_refused() -> None:
    source = Accumulated(nn.Linear(2, 1), n_rows=2)
    message = r"`model` must have gradients: call `backward\(\)` before each call, got none\."
    with pytest.raises(ValueError, match=message):
        source()
