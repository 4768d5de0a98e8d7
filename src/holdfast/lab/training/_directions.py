"""Directions for attackers: gradients that only a trainer can compute."""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.checks import failure
from holdfast.lab.data import DataSet
from holdfast.lab.training._evaluation import CHUNK, as_input
from holdfast.layout import Layout
from holdfast.threats import Attack

N_SAMPLES = 2048
"""Samples behind a direction; all of them if there are fewer."""

SHIFTS = {"true-gradient": 0, "wrong-labels": 1}
"""By direction, what is added to the labels, modulo the number of classes."""


def check_directions(attack: Attack | None) -> None:
    """Refuse an attack that needs a direction other than those of this module."""
    if attack is None or attack.needs_directions <= set(SHIFTS):
        return
    known = " and ".join(map(repr, SHIFTS))
    unknown = ", ".join(map(repr, sorted(attack.needs_directions - set(SHIFTS))))
    got = f"{attack!r}, which needs {unknown}"
    raise failure("attack", f"need no directions but {known}", got)


def loss_gradients(
    model: nn.Module, data: DataSet, names: Collection[str], indices: Tensor
) -> dict[str, Tensor]:
    """[d] for each of the `names`, the gradient of the mean loss on training samples.

    Computed in eval mode: dropout is off, running statistics are used and stay as they are. `.grad`
    and the mode of the model do not change.

    Args:
        model: the model.
        data: its data set.
        names: keys of `SHIFTS`, which change the labels.
        indices: [N] the training samples.
    """
    layout, was_training = Layout(model), model.training
    gradients = {name: torch.zeros(layout.d, device=indices.device) for name in sorted(names)}
    model.eval()
    try:
        for part in indices.split(CHUNK):
            images, labels = data.train.batch(part)
            with torch.enable_grad():
                scores = model(as_input(data, images))
            for name, total in gradients.items():
                # All directions share the forward pass, so its graph is kept for the next one.
                wanted = (labels + SHIFTS[name]) % data.n_classes
                loss = cross_entropy(scores, wanted, reduction="sum") / len(indices)
                found = torch.autograd.grad(loss, layout.parameters, retain_graph=True)
                total += layout.flatten(found)
    finally:
        model.train(was_training)
    return gradients
