"""Evaluation on the test set."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.lab.data import DataSet
from holdfast.threats import Backdoor, Corruption, WrongLabels

CHUNK = 100
"""Images per forward pass. On a CPU larger chunks take twice as long: their activations are new
memory each time, which the system clears first."""


MEASURES = ("accuracy", "test_loss", "attack_success")
"""What :func:`evaluate` may measure."""


def evaluate(
    model: nn.Module, data: DataSet, corruption: Corruption | None = None
) -> dict[str, Any]:
    """Accuracy and loss on the test set, in eval mode; a loss that is not finite is None.

    For a corruption with a target class, also `attack_success`: the share of the images of other
    classes that the model assigns to it, with the trigger if there is one.
    """
    labels = data.test.labels
    scores = _scores(model, data, lambda images: images)
    loss, predicted = float(cross_entropy(scores, labels)), scores.argmax(1)
    test_loss = loss if math.isfinite(loss) else None
    found = {"accuracy": _share(predicted == labels), "test_loss": test_loss}
    if isinstance(corruption, Backdoor):
        predicted = _scores(model, data, corruption.stamp).argmax(1)
    if isinstance(corruption, (Backdoor, WrongLabels)) and corruption.target is not None:
        target = corruption.target
        found["attack_success"] = _share(predicted[labels != target] == target)
    return found


@torch.no_grad()
def _scores(model: nn.Module, data: DataSet, change: Callable[[Tensor], Tensor]) -> Tensor:
    """[N, n_classes] scores of the test images, each changed before it is normalized."""
    was_training = model.training
    model.eval()
    try:
        parts = torch.arange(len(data.test), device=data.test.labels.device).split(CHUNK)
        images = (change(data.test.batch(part)[0]) for part in parts)
        return torch.cat([model(as_input(data, some)) for some in images])
    finally:
        model.train(was_training)


def as_input(data: DataSet, images: Tensor) -> Tensor:
    """Images normalized for the model, channels last, which doubles the speed on a CPU."""
    normal = data.normalize(images)
    return normal.contiguous(memory_format=torch.channels_last) if normal.ndim == 4 else normal


def _share(hits: Tensor) -> float:
    return float(hits.cpu().double().mean())
