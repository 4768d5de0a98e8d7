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
    """[d] the gradient of the loss on trusted samples; running statistics stay as they are."""
    before = [buffer.clone() for buffer in model.buffers()]
    gradient = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=1)(images, labels).matrix()[0]
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)
    return gradient


def descent_score(
    model: nn.Module, lr: float, images: Tensor, labels: Tensor
) -> Callable[[Tensor], float]:
    """How much the loss on trusted samples falls along a direction, by a step of the learning rate.

    In eval mode: dropout would draw other units for each direction, and what a bad row makes of the model must not reach running statistics.
    """
    layout = Layout(model)

    @torch.no_grad()
    def loss(direction: Tensor) -> Tensor:
        pieces = layout.split(direction)
        moved: dict[str, Any] = {
            name: parameter - lr * piece
            for name, parameter, piece in zip(layout.names, layout.parameters, pieces, strict=True)
        }
        was_training = model.training
        model.eval()
        try:
            return cross_entropy(functional_call(model, moved, (images,)), labels)
        finally:
            model.train(was_training)

    before = loss(torch.zeros(layout.d, device=images.device))
    return lambda direction: float(before - loss(direction))
