"""Models: those of the paper, and two simpler ones."""

from typing import Protocol

import torch
from torch import nn

from holdfast.lab.models._initialised import Shape
from holdfast.lab.models._lenet import lenet
from holdfast.lab.models._logistic_regression import logistic_regression
from holdfast.lab.models._mlp import mlp
from holdfast.lab.models._resnet18 import resnet18
from holdfast.lab.models._tiny_cnn import tiny_cnn

__all__ = ["lenet", "logistic_regression", "mlp", "models", "resnet18", "tiny_cnn"]


class Architecture(Protocol):
    """Makes a model for images of a shape."""

    def __call__(
        self, *, shape: Shape = ..., generator: torch.Generator | None = None
    ) -> nn.Sequential: ...


models: dict[str, Architecture] = {
    "lenet": lenet,
    "logistic-regression": logistic_regression,
    "mlp": mlp,
    "resnet-18": resnet18,
    "tiny-cnn": tiny_cnn,
}
"""Every architecture by its short name."""
