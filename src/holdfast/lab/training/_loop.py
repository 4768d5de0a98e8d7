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
        DivergedError: if the honest rows' loss, or a parameter, is not finite any more.
        NonFiniteRowsError: if most rows are not.
        NonFiniteMemoryError: if what the step would carry over or send is not.
    """
    config, data, optimizer = experiment.config, experiment.data, experiment.optimizer
    batches = experiment.batches
    for step in range(start, config.n_steps):
        clock, at = Clock(experiment.device), {"seed": config.seed, "step": step}
        set_lr(
            experiment,
            config.optimizer.lr
            * config.schedule.factor(batches.epoch(step), batches.epoch(config.n_steps)),
        )
        bad_rows = config.threat.bad_rows(config.n_rows, **at)
        indices = batches.indices(step)
        images, labels = data.train.batch(indices.to(experiment.device))
        clock.lap("data")
        bad_samples = config.threat.bad_samples(indices, bad_rows, n_train=len(data.train), **at)
        images, labels = config.threat.corrupt(images, labels, bad_samples, **at)
        clock.lap("attack")
        with own_randomness("dropout", experiment, step):
            rows = experiment.source(as_input(data, images), labels)
        loss = honest_loss(experiment, bad_rows)
        if experiment.worker_momentum is not None:
            rows = experiment.source.layout.rows(
                experiment.worker_momentum(rows).matrix()
            )  # a copy, which attackers may change
        clock.lap("gradient")
        experiment.attack_state = config.threat.apply_attack(
            rows, bad_rows, **at, state=experiment.attack_state
        )
        clock.lap("attack")
        optimizer.zero_grad()
        result = optimizer.backward(rows, **call_arguments(experiment, step))
        assert result is not None
        remember(experiment, result)
        clock.lap("aggregation")
        optimizer.step()
        check_parameters(experiment)
        clock.lap("optimizer")
        entry = {"step": step + 1, "loss": loss, **account(experiment, step + 1, result, bad_rows)}
        if (step + 1) % config.evaluate_every == 0 or step + 1 == config.n_steps:
            entry |= evaluate(experiment.model, data, config.threat.corruption)
            clock.lap("evaluation")
        yield entry | {"seconds": clock.seconds}


def set_lr(experiment: Experiment, lr: float) -> None:
    """Use this learning rate from now on."""
    for group in experiment.optimizer.param_groups:
        group["lr"] = lr


@contextmanager
def own_randomness(name: str, experiment: Experiment, step: int) -> Iterator[None]:
    """Let dropout, which draws from torch's global generators, depend on name, seed and step alone; they are put back afterwards."""
    kind = experiment.device.type
    n_devices = 0 if kind == "cpu" else torch.get_device_module(kind).device_count()
    with torch.random.fork_rng(range(n_devices), device_type="cuda" if kind == "cpu" else kind):
        drawn = stream(experiment.config.seed, name, step).initial_seed()
        torch.default_generator.manual_seed(drawn)
        if n_devices:
            torch.manual_seed(drawn)  # also of every device, all of which are put back
        yield


def honest_loss(experiment: Experiment, bad_rows: Tensor) -> float:
    """The mean loss of the honest rows, which must be a number; what bad rows report is the attacker's to choose."""
    loss = float(experiment.source.losses.cpu()[~bad_rows].double().mean())
    if not math.isfinite(loss):
        raise DivergedError(f"`loss` must be finite, got {loss}.")
    return loss


def check_parameters(experiment: Experiment) -> None:
    """All parameters are numbers."""
    largest = [
        torch.linalg.vector_norm(parameter.detach(), torch.inf)
        for parameter in experiment.model.parameters()
    ]
    if not bool(torch.isfinite(torch.stack(largest)).all()):
        raise DivergedError("`parameters` must be finite, got NaN or infinity.")


def call_arguments(experiment: Experiment, step: int) -> dict[str, Any]:
    """What the rule's call brings: a trusted gradient, a loss on trusted samples, or the direction before."""
    config = experiment.config
    if config.needs_trust:
        trusted = experiment.batches.trusted_indices(step, config.row_size).to(experiment.device)
        images, labels = experiment.data.train.batch(trusted)
        with own_randomness("trusted dropout", experiment, step):
            if "reference" in config.aggregator.needs:
                return {
                    "reference": trusted_gradient(
                        experiment.model, as_input(experiment.data, images), labels
                    )
                }
            lr = float(experiment.optimizer.param_groups[0]["lr"])
            return {
                "score": descent_score(
                    experiment.model, lr, as_input(experiment.data, images), labels
                )
            }
    return {"reference": experiment.direction} if experiment.direction is not None else {}


def remember(experiment: Experiment, result: StepResult) -> None:
    """Keep the direction for a rule that starts from the one before."""
    if "reference" in experiment.config.aggregator.takes and not experiment.config.needs_trust:
        experiment.direction = result.direction.clone()


def account(
    experiment: Experiment, step: int, result: StepResult, bad_rows: Tensor
) -> dict[str, Any]:
    """What the record keeps of a step."""
    entry: dict[str, Any] = {
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
