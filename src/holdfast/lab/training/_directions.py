"""Directions for attackers: gradients, columns and a bad model, which only a trainer knows."""

from collections.abc import Callable, Collection

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

KNOWN = (*SHIFTS, "first-layer", "class", "drift")
"""All directions."""

TARGET = 0
"""The class of the direction "class"."""

DRIFT_STEPS, DRIFT_SAMPLES, DRIFT_LR = 200, 64, 0.1
"""Training of the bad model of the direction "drift": steps, samples per step, learning rate."""


def check_directions(attack: Attack | None) -> None:
    """Refuse an attack that needs a direction other than those of this module."""
    if attack is None or attack.needs_directions <= set(KNOWN):
        return
    *others, last = map(repr, KNOWN)
    known = f"{', '.join(others)} and {last}"
    unknown = ", ".join(map(repr, sorted(attack.needs_directions - set(KNOWN))))
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


def column_masks(layout: Layout, names: Collection[str]) -> dict[str, Tensor]:
    """[d] for "first-layer" and "class", where they are among the `names`: 1 on their columns.

    These are the weights of the first layer, and the weights and the bias of the last layer for the
    score of the class `TARGET`.
    """
    weights = [i for i, shape in enumerate(layout.shapes) if len(shape) > 1]
    masks = {}
    for name in sorted({"first-layer", "class"} & set(names)):
        parts = [torch.zeros(shape) for shape in layout.shapes]
        if name == "first-layer":
            parts[weights[0]].fill_(1.0)
        else:
            for part in parts[weights[-1] :]:
                part[TARGET] = 1.0
        masks[name] = layout.flatten(parts).to(layout.parameters[0].device)
    return masks


def bad_parameters(model: nn.Module, data: DataSet, indices: Callable[[int], Tensor]) -> Tensor:
    """[d] the parameters to which the direction "drift" leads.

    The model, which is changed, learns the labels y + 1 by plain SGD, in eval mode.

    Args:
        model: in its initial state.
        data: its data set.
        indices: the training samples of a step of this training.
    """
    layout = Layout(model)
    optimizer = torch.optim.SGD(layout.parameters, lr=DRIFT_LR)
    for step in range(DRIFT_STEPS):
        found = loss_gradients(model, data, ["wrong-labels"], indices(step))
        optimizer.zero_grad()
        layout.write_gradient(found["wrong-labels"])
        optimizer.step()
    return layout.values()
