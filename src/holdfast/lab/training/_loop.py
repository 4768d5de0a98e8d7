"""The training loop."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from holdfast.errors import DivergedError
from holdfast.lab.training._clock import Clock
from holdfast.lab.training._evaluation import as_input, evaluate
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._trust import descent_score, trusted_gradient
from holdfast.robust_step import StepResult
from holdfast.seeds import stream


def training(experiment: Experiment, start: int) -> Iterator[dict[str, Any]]:
    """Make the steps from `start` on, and yield an entry for the record after each.

    Raises:
        DivergedError: if the honest rows' loss is not finite any more.
        NonFiniteRowsError: if most rows are not.
        NonFiniteMemoryError: if what the step would carry over or send is not.
    """
    config, data, optimizer = experiment.config, experiment.data, experiment.optimizer
    batches = experiment.batches
    for step in range(start, config.n_steps):
        clock, at = Clock(experiment.device), {"seed": config.seed, "step": step}
        set_lr(experiment, config.optimizer.lr * config.schedule.factor(batches.epoch(step), batches.epoch(config.n_steps)))
        bad_rows = config.threat.bad_rows(config.n_rows, **at)
        images, labels = data.train.batch(batches.indices(step).to(experiment.device))
        clock.lap("data")
        images, labels = config.threat.corrupt(images, labels, bad_rows, **at)
        clock.lap("attack")
        with own_randomness(config.seed, step, experiment.device):
            rows = experiment.source(as_input(data, images), labels)
        check_loss(experiment.source.losses[~bad_rows])
        clock.lap("gradient")
        experiment.attack_state = config.threat.falsify(rows, bad_rows, **at, state=experiment.attack_state)
        clock.lap("attack")
        if experiment.worker_momentum is not None:
            rows = experiment.worker_momentum(rows)
        optimizer.zero_grad()
        result = optimizer.backward(rows, **call_arguments(experiment, step))
        assert result is not None
        remember(experiment, result)
        clock.lap("aggregation")
        optimizer.step()
        clock.lap("optimizer")
        entry = account(experiment, step + 1, result, bad_rows)
        if (step + 1) % config.evaluate_every == 0 or step + 1 == config.n_steps:
            entry |= evaluate(experiment.model, data, config.threat.corruption)
            clock.lap("evaluation")
        yield entry | {"seconds": clock.seconds}


def set_lr(experiment: Experiment, lr: float) -> None:
    """Use this learning rate from now on."""
    for group in experiment.optimizer.param_groups:
        group["lr"] = lr


@contextmanager
def own_randomness(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Let dropout, which draws from torch's global generators, depend on seed and step alone; they are put back afterwards."""
    drawn = stream(seed, "dropout", step).initial_seed()
    if device.type == "cpu":
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(drawn)
            yield
    else:
        with torch.random.fork_rng([device], device_type=device.type):
            torch.default_generator.manual_seed(drawn)
            torch.get_device_module(device).manual_seed(drawn)
            yield


def check_loss(losses: Tensor) -> None:
    """The honest rows' loss is a number."""
    loss = float(losses.double().mean())
    if not math.isfinite(loss):
        raise DivergedError(f"`loss` must be finite, got {loss}.")


def call_arguments(experiment: Experiment, step: int) -> dict[str, Any]:
    """What the rule's call brings: a trusted gradient, a loss on trusted samples, or the direction before."""
    config = experiment.config
    if config.needs_trust:
        trusted = experiment.batches.trusted_indices(step, config.row_size).to(experiment.device)
        images, labels = experiment.data.train.batch(trusted)
        with own_randomness(config.seed, step, experiment.device):
            if "reference" in config.aggregator.needs:
                return {"reference": trusted_gradient(experiment.model, as_input(experiment.data, images), labels)}
            lr = float(experiment.optimizer.param_groups[0]["lr"])
            return {"score": descent_score(experiment.model, lr, as_input(experiment.data, images), labels)}
    return {"reference": experiment.direction} if experiment.direction is not None else {}


def remember(experiment: Experiment, result: StepResult) -> None:
    """Keep the direction for a rule that starts from the one before."""
    if "reference" in experiment.config.aggregator.takes and not experiment.config.needs_trust:
        experiment.direction = result.direction.clone()


def account(experiment: Experiment, step: int, result: StepResult, bad_rows: Tensor) -> dict[str, Any]:
    """What the record keeps of a step."""
    entry: dict[str, Any] = {
        "step": step,
        "loss": float(experiment.source.losses[~bad_rows].double().mean()),
        "lr": float(experiment.optimizer.param_groups[0]["lr"]),
        "n_rejected": int(result.rejected.sum()),
        "residual": result.residual,
        "memory_norm": result.memory_norm,
        "gap": result.gap,
        "outcome": result.outcome.value,
    }
    if result.weights is not None and experiment.config.threat.hits_rows:
        weights = result.weights.abs()
        total = float(weights.sum())  # zero for a rule that trusts nobody
        entry["bad_weight"] = float(weights[bad_rows].sum()) / total if total else 0.0
    if step % experiment.config.rows_every == 0:
        entry["rejected"] = result.rejected.nonzero().flatten().tolist()
        if result.weights is not None:
            entry["weights"] = [float(f"{weight:.6g}") for weight in result.weights.tolist()]
        if experiment.config.threat.hits_rows:
            entry["bad"] = bad_rows.nonzero().flatten().tolist()
    return entry
