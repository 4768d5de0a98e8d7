"""What a step of rows and a round of workers have in common."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from holdfast.errors import DivergedError
from holdfast.lab.training._directions import N_SAMPLES, loss_gradients
from holdfast.lab.training._evaluation import as_input
from holdfast.lab.training._experiment import Experiment
from holdfast.seeds import stream


@final
class Clock:
    """Seconds spent in each part of a step."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to `part`."""
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[part] = round(self.seconds.get(part, 0.0) + now - self._last, 6)
        self._last = now


def batch_of(
    experiment: Experiment, step: int, bad_rows: Tensor, clock: Clock
) -> tuple[Tensor, Tensor]:
    """The inputs of a step, row by row, and their labels, both after the corruption."""
    config, data, threat = experiment.config, experiment.data, experiment.config.threat
    at = {"seed": config.seed, "step": step}
    indices = experiment.batches.indices(step)
    images, labels = data.train.batch(indices.to(experiment.device))
    clock.lap("data")
    bad_samples = threat.bad_samples(indices, bad_rows, n_train=len(data.train), **at)
    images, labels = threat.corrupt(images, labels, bad_samples, **at)
    clock.lap("attack")
    return as_input(data, images), labels


@contextmanager
def reproducible_dropout(name: str, experiment: Experiment, step: int) -> Iterator[None]:
    """Seed torch's global generators by name, seed and step, and restore them afterwards.

    Dropout draws from them and takes no generator.
    """
    kind = experiment.device.type
    n_devices = 0 if kind == "cpu" else torch.get_device_module(kind).device_count()
    with torch.random.fork_rng(range(n_devices), device_type="cuda" if kind == "cpu" else kind):
        seed = stream(experiment.config.seed, name, step).initial_seed()
        torch.default_generator.manual_seed(seed)
        if n_devices:
            torch.manual_seed(seed)  # seeds every device
        yield


def honest_loss(losses: Tensor, bad_rows: Tensor) -> float:
    """Mean of the losses [n] of the honest rows; bad rows may report any loss."""
    loss = float(losses.cpu()[~bad_rows].double().mean())
    if not math.isfinite(loss):
        raise DivergedError(f"`loss` must be finite, got {loss}.")
    return loss


def check_parameters(model: nn.Module) -> None:
    """Refuse parameters that are not finite."""
    largest = [torch.linalg.vector_norm(one.detach(), torch.inf) for one in model.parameters()]
    if not bool(torch.isfinite(torch.stack(largest)).all()):
        raise DivergedError("`parameters` must be finite, got NaN or infinity.")


def attack_directions(experiment: Experiment, bad_rows: Tensor, step: int) -> dict[str, Tensor]:
    """The directions that the attack of this step needs; none if nobody is bad."""
    attack = experiment.config.threat.attack
    if attack is None or not attack.needs_directions or not bool(bad_rows.any()):
        return {}
    indices = experiment.batches.direction_indices(step, N_SAMPLES).to(experiment.device)
    return loss_gradients(experiment.model, experiment.data, attack.needs_directions, indices)
