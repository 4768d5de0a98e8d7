"""The training loop."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from holdfast.errors import DivergedError
from holdfast.geometry import Rows
from holdfast.lab.training._directions import N_SAMPLES, SHIFTS, column_masks, loss_gradients
from holdfast.lab.training._evaluation import as_input, evaluate
from holdfast.lab.training._experiment import Experiment
from holdfast.layout import Layout
from holdfast.monitor import Monitor
from holdfast.seeds import stream
from holdfast.sources import MicroBatches


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


def training(experiment: Experiment, start: int) -> Iterator[dict[str, Any]]:
    """Train from step `start` on, and yield an entry for the record after each step.

    Raises:
        DivergedError: if the loss of the honest rows or a parameter is not finite.
        NonFiniteRowsError: if most rows are not finite.
        NonFiniteMemoryError: if the state of the robust step would not be finite.
    """
    config, data, optimizer = experiment.config, experiment.data, experiment.optimizer
    threat, batches = config.threat, experiment.batches
    n_epochs = batches.epoch(config.n_steps)
    for step in range(start, config.n_steps):
        clock, at = Clock(experiment.device), {"seed": config.seed, "step": step}
        factor = config.schedule.factor(batches.epoch(step), n_epochs)
        for group in optimizer.param_groups:
            group["lr"] = config.optimizer.lr * factor
        bad_rows = threat.bad_rows(config.n_rows, **at)
        indices = batches.indices(step)
        images, labels = data.train.batch(indices.to(experiment.device))
        clock.lap("data")
        bad_samples = threat.bad_samples(indices, bad_rows, n_train=len(data.train), **at)
        images, labels = threat.corrupt(images, labels, bad_samples, **at)
        clock.lap("attack")
        with reproducible_dropout("dropout", experiment, step):
            rows = experiment.source(as_input(data, images), labels)
        loss = honest_loss(experiment, bad_rows)
        if experiment.worker_momentum is not None:
            # Attackers may change the rows in place, so they get a copy of the momentum.
            rows = experiment.source.layout.rows(experiment.worker_momentum(rows).matrix())
        clock.lap("gradient")
        arguments = call_arguments(experiment, step)
        clock.lap("aggregation")
        experiment.attack_state = threat.apply_attack(
            rows,
            bad_rows,
            **at,
            state=experiment.attack_state,
            rule=config.rule,
            rule_arguments=arguments,
            directions=attack_directions(experiment, bad_rows, step),
        )
        clock.lap("attack")
        optimizer.zero_grad()
        optimizer.backward(rows, **arguments)
        keep_direction(experiment)
        clock.lap("aggregation")
        optimizer.step()
        check_parameters(experiment.model)
        clock.lap("optimizer")
        entry = log_entry(experiment, step + 1, loss, bad_rows)
        if experiment.monitor is not None:
            entry |= suspicion(experiment, experiment.monitor, rows)
            clock.lap("monitor")
        if (step + 1) % config.evaluate_every == 0 or step + 1 == config.n_steps:
            if experiment.ranks is not None:
                experiment.ranks.check_same(experiment.model.parameters())
            if experiment.is_first:
                entry |= evaluate(experiment.model, data, threat.corruption)
            clock.lap("evaluation")
        yield entry | {"seconds": clock.seconds} | rank_seconds(experiment)


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


def honest_loss(experiment: Experiment, bad_rows: Tensor) -> float:
    """Mean loss of the honest rows; bad rows may report any loss."""
    loss = float(experiment.source.losses.cpu()[~bad_rows].double().mean())
    if not math.isfinite(loss):
        raise DivergedError(f"`loss` must be finite, got {loss}.")
    return loss


def check_parameters(model: nn.Module) -> None:
    """Refuse parameters that are not finite."""
    largest = [torch.linalg.vector_norm(one.detach(), torch.inf) for one in model.parameters()]
    if not bool(torch.isfinite(torch.stack(largest)).all()):
        raise DivergedError("`parameters` must be finite, got NaN or infinity.")


def call_arguments(experiment: Experiment, step: int) -> dict[str, Any]:
    """The rule's further arguments: a reference gradient, or a score for directions."""
    config, model = experiment.config, experiment.model
    if not config.needs_trust:
        return {} if experiment.direction is None else {"reference": experiment.direction}
    trusted = experiment.batches.trusted_indices(step, config.row_size).to(experiment.device)
    images, labels = experiment.data.train.batch(trusted)
    images = as_input(experiment.data, images)
    with reproducible_dropout("trusted dropout", experiment, step):
        if "reference" in config.rule.needs:
            return {"reference": trusted_gradient(model, images, labels)}
        return {"score": descent_score(model, experiment.lr, images, labels)}


def trusted_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """[d] gradient of the loss on trusted samples; the model's buffers stay unchanged."""
    before = [buffer.clone() for buffer in model.buffers()]
    gradient = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=1)(images, labels).matrix()[0]
    for buffer, value in zip(model.buffers(), before, strict=True):
        buffer.copy_(value)
    return gradient


def descent_score(
    model: nn.Module, lr: float, images: Tensor, labels: Tensor
) -> Callable[[Tensor], float]:
    """A function of a direction: the decrease of the loss on trusted samples after a step along it.

    Losses are computed in eval mode, where dropout is off and a bad row cannot change the running
    statistics.
    """
    layout = Layout(model)

    @torch.no_grad()
    def loss(direction: Tensor) -> Tensor:
        parts = zip(layout.names, layout.parameters, layout.split(direction), strict=True)
        moved: dict[str, Any] = {name: value - lr * piece for name, value, piece in parts}
        was_training = model.training
        model.eval()
        try:
            return cross_entropy(functional_call(model, moved, (images,)), labels)
        finally:
            model.train(was_training)

    before = loss(torch.zeros(layout.d, device=images.device))
    return lambda direction: float(before - loss(direction))


def attack_directions(experiment: Experiment, bad_rows: Tensor, step: int) -> dict[str, Tensor]:
    """The directions that the attack of this step needs; none if nobody is bad."""
    attack = experiment.config.threat.attack
    if attack is None or not attack.needs_directions or not bool(bad_rows.any()):
        return {}
    names, layout = attack.needs_directions, experiment.source.layout
    found = column_masks(layout, names)
    if "drift" in names:
        found["drift"] = layout.values() - experiment.bad_parameters
    shifted = names & set(SHIFTS)
    if shifted:
        indices = experiment.batches.direction_indices(step, N_SAMPLES).to(experiment.device)
        found |= loss_gradients(experiment.model, experiment.data, shifted, indices)
    return found


def keep_direction(experiment: Experiment) -> None:
    """Keep the direction if the rule starts from the previous one."""
    result = experiment.optimizer.result
    assert result is not None
    if "reference" in experiment.config.rule.takes and not experiment.config.needs_trust:
        experiment.direction = result.direction.clone()


def log_entry(experiment: Experiment, step: int, loss: float, bad_rows: Tensor) -> dict[str, Any]:
    """The record's entry of a step; diagnostics that are not finite are None."""
    # The optimizer's step delivers the block, so the residual is known only after it.
    result = experiment.optimizer.result
    assert result is not None
    entry: dict[str, Any] = {
        "step": step,
        "loss": loss,
        "lr": experiment.lr,
        "n_rejected": int(result.rejected.sum()),
        "residual": finite(result.residual),
        "memory_norm": finite(result.carried_norm),
        "gap": finite(result.aggregate.gap),
        "outcome": result.aggregate.outcome.value,
    }
    hits_rows = experiment.config.threat.hits_rows
    if result.weights is not None and hits_rows:
        weights = result.weights.abs()
        total = float(weights.sum())  # zero if the rule rejects every row
        entry["bad_weight"] = finite(float(weights[bad_rows].sum()) / total if total else 0.0)
    if step % experiment.config.rows_every == 0:
        entry["rejected"] = result.rejected.nonzero().flatten().tolist()
        if result.weights is not None:
            rounded = (float(f"{weight:.6g}") for weight in result.weights.tolist())
            entry["weights"] = list(map(finite, rounded))
        if hits_rows:
            entry["bad"] = bad_rows.nonzero().flatten().tolist()
    return entry


def rank_seconds(experiment: Experiment) -> dict[str, list[float]]:
    """The time that each rank took for its row, without the time it waited for the others."""
    seconds = getattr(experiment.source, "seconds", None)
    return {} if seconds is None else {"rank_seconds": seconds}


def suspicion(experiment: Experiment, monitor: Monitor, rows: Rows) -> dict[str, Any]:
    """Show the step to the monitor; the rows that are suspect now, if any are or were before."""
    result = experiment.optimizer.result
    assert result is not None
    before = monitor.suspects()
    gram = result.aggregate.gram or rows.gram()
    monitor.observe(gram.for_all(rows.n), result.rejected)
    suspects = sorted(suspect.row for suspect in monitor.suspects())
    return {"suspects": suspects} if suspects or before else {}


def finite(value: float | None) -> float | None:
    """The value, or None if it is not finite, which JSON cannot express."""
    return value if value is not None and math.isfinite(value) else None
