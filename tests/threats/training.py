"""A small real training under threat: softmax regression on the slice of Fashion-MNIST.

20 rows of 32 images per step; bad rows are redrawn at every step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import avg_pool2d, cross_entropy

from holdfast.lab.data import fashion_mnist_slice
from holdfast.seeds import stream
from holdfast.threats import (
    Adversaries,
    Attack,
    Corruption,
    Knowledge,
    Rule,
    State,
    rows_to_samples,
)

N_ROWS, BATCH, LR = 20, 32, 0.1
MEAN, DEVIATION = 0.286, 0.353  # of the pixels
D = 1970

Step = Callable[..., Tensor]
"""From the rows [n, d] (and, if trusted, a `reference` gradient) to the direction [d]."""


@dataclass
class Result:
    """Parameters, test accuracy in percent over the last quarter of the steps, and directions."""

    parameters: Tensor
    accuracy: float
    honest: list[Tensor] = field(default_factory=list)
    directions: list[Tensor] = field(default_factory=list)

    @property
    def along(self) -> float:
        """Median over steps of the direction's part along the honest mean; 1 if they are equal."""
        parts = [
            float(step @ mean / mean.square().sum())
            for step, mean in zip(self.directions, self.honest, strict=True)
        ]
        return sorted(parts)[len(parts) // 2]

    @property
    def away(self) -> float:
        """Median over steps of the direction's distance from the honest mean, in its lengths."""
        parts = [
            float((step - mean).norm() / mean.norm())
            for step, mean in zip(self.directions, self.honest, strict=True)
        ]
        return sorted(parts)[len(parts) // 2]


@cache
def images(split: str) -> tuple[Tensor, Tensor]:
    """[N, 1, 14, 14] on image scale, half as large as the originals (to be quick), and labels."""
    data = fashion_mnist_slice("train" if split == "train" else "test")
    return avg_pool2d(data.scaled().view(-1, 1, 28, 28), 2), data.labels


def logits(parameters: Tensor, pixels: Tensor) -> Tensor:
    """[..., 10] of images [..., 1, 14, 14] on image scale."""
    flat = ((pixels - MEAN) / DEVIATION).flatten(-3)
    return flat @ parameters[:-10].view(196, 10) + parameters[-10:]


def loss(parameters: Tensor, pixels: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits(parameters, pixels), labels)


row_gradients = vmap(grad(loss), in_dims=(None, 0, 0))


def train(
    step: Step,
    threat: Attack | Corruption | None = None,
    *,
    bad_fraction: float = 0.4,
    by_sample: bool = False,
    sorted_by_class: bool = False,
    trusted: bool = False,
    rule: Rule | None = None,
    n_steps: int = 60,
    seed: int = 0,
) -> Result:
    """Train by plain SGD.

    Corruptions hit whole rows or, `by_sample`, as many samples of all rows. With `sorted_by_class`,
    row i has only two classes. With `trusted`, the step gets the gradient of 128 clean images. The
    attackers know the `rule`.
    """
    pixels, labels = images("train")
    draws, threats = stream(seed, "batches"), stream(seed, "threats")
    adversaries = Adversaries(bad_fraction=bad_fraction)
    mask: Tensor | None = None
    state: State = None
    parameters = torch.zeros(D)
    result = Result(parameters, 0.0)
    pools = [
        torch.nonzero((labels == i % 10) | (labels == (i + 1) % 10))[:, 0] for i in range(N_ROWS)
    ]
    accuracies = []
    for t in range(n_steps):
        batch = torch.randint(0, len(labels), (N_ROWS, BATCH), generator=draws)
        if sorted_by_class:
            batch = torch.stack(
                [pool[row % len(pool)] for pool, row in zip(pools, batch, strict=True)]
            )
        x, y = pixels[batch], labels[batch]
        mask = adversaries.draw(N_ROWS, generator=threats, previous=mask)
        clean = row_gradients(parameters, x, y)
        rows = clean
        if isinstance(threat, Corruption):
            samples = (
                adversaries.draw(N_ROWS * BATCH, generator=threats)
                if by_sample
                else rows_to_samples(mask, N_ROWS * BATCH)
            )
            x, y = threat(x.flatten(0, 1), y.flatten(), samples, generator=threats)
            rows = row_gradients(
                parameters, x.view(N_ROWS, BATCH, 1, 14, 14), y.view(N_ROWS, BATCH)
            )
        clue = torch.randint(0, len(labels), (128,), generator=draws)
        trust: dict[str, Any] = (
            {"reference": grad(loss)(parameters, pixels[clue], labels[clue])} if trusted else {}
        )
        if isinstance(threat, Attack):
            known: Knowledge = {
                "generator": threats,
                "rule": rule,
                "rule_arguments": trust,
                "directions": directions(parameters, threat, seed, t),
                "step": t,
            }
            rows = threat(clean, mask, state=state, **known)
            state = threat.learn(clean, mask, state, **known) if threat.takes_state else None
        direction = step(rows, **trust)
        result.honest.append(clean[~mask].mean(0))
        result.directions.append(direction)
        parameters = parameters - LR * direction
        if 4 * (t + 1) >= 3 * n_steps and (n_steps - 1 - t) % 4 == 0:
            accuracies.append(accuracy(parameters))
    result.parameters, result.accuracy = parameters, sum(accuracies) / len(accuracies)
    return result


def directions(parameters: Tensor, attack: Attack, seed: int, step: int) -> dict[str, Tensor]:
    """Those that the attack needs: gradients of 2,048 images, columns, the way to a bad model."""
    if not attack.needs_directions:
        return {}
    pixels, labels = images("train")
    batch = torch.randperm(len(labels), generator=stream(seed, "directions", step))[:2048]
    classes = {"true-gradient": labels, "wrong-labels": (labels + 1) % 10}
    # Weights [196, 10] and then 10 biases.
    marks = {"first-layer": torch.arange(D) < 1960, "class": torch.arange(D) % 10 == 0}
    found = {name: marks[name].float() for name in attack.needs_directions & set(marks)}
    if "drift" in attack.needs_directions:
        found["drift"] = parameters - bad_parameters()
    for name in attack.needs_directions & set(classes):
        found[name] = grad(loss)(parameters, pixels[batch], classes[name][batch])
    return found


@cache
def bad_parameters() -> Tensor:
    """[d] those that labels y + 1 teach in 200 steps."""
    pixels, labels = images("train")
    parameters = torch.zeros(D)
    for step in range(200):
        at = torch.randperm(len(labels), generator=stream(0, "bad model", step))[:64]
        parameters = parameters - LR * grad(loss)(parameters, pixels[at], (labels[at] + 1) % 10)
    return parameters


def accuracy(parameters: Tensor) -> float:
    """Percent of the test images."""
    pixels, labels = images("test")
    return 100 * float((logits(parameters, pixels).argmax(1) == labels).double().mean())
