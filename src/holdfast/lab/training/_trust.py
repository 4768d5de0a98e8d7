"""What a trainer with samples of its own can tell a rule."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from holdfast.layout import Layout
from holdfast.sources import MicroBatches


def trusted_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """[d] the gradient of the loss on trusted samples."""
    return MicroBatches(model, nn.CrossEntropyLoss(), n_rows=1)(images, labels).matrix()[0]


def descent_score(model: nn.Module, lr: float, images: Tensor, labels: Tensor) -> Callable[[Tensor], float]:
    """How much the loss on trusted samples falls along a direction, by a step of the learning rate."""
    layout = Layout(model)

    @torch.no_grad()
    def loss(direction: Tensor) -> Tensor:
        pieces = layout.split(direction)
        moved: dict[str, Any] = {
            name: parameter - lr * piece for name, parameter, piece in zip(layout.names, layout.parameters, pieces, strict=True)
        }
        return cross_entropy(functional_call(model, moved, (images,)), labels)

    before = loss(torch.zeros(layout.d, device=images.device))
    return lambda direction: float(before - loss(direction))
