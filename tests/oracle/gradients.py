"""Gradients by ordinary backward passes of a copy of the model, one slice after the other."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from holdfast import Layout


def ordinary(model: nn.Module, loss_fn: Callable[..., Tensor], x: Any, y: Any) -> Tensor:
    """[d] the gradient that `loss_fn(model(x), y).backward()` writes, parameter by parameter."""
    twin = copy.deepcopy(model)
    twin.zero_grad()
    loss_fn(twin(x), y).backward()
    layout = Layout(twin)
    return layout.flatten(
        [torch.zeros_like(p) if p.grad is None else p.grad for p in layout.parameters]
    )


def by_loop(
    model: nn.Module, loss_fn: Callable[..., Tensor], x: Any, y: Any, n_rows: int
) -> Tensor:
    """[n_rows, d] the gradient of each slice."""
    pairs = zip(x.chunk(n_rows), y.chunk(n_rows), strict=True)
    return torch.stack([ordinary(model, loss_fn, inputs, targets) for inputs, targets in pairs])
