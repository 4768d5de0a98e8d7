"""The training loop."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from holdfast.lab.training._entries import log_entry, rank_seconds, suspicion
from holdfast.lab.training._evaluation import as_input, evaluate
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._rounds import worker_round
from holdfast.lab.training._step_parts import (
    Clock,
    attack_directions,
    batch_of,
    check_parameters,
    honest_loss,
    reproducible_dropout,
)
from holdfast.layout import Layout
from holdfast.sources import MicroBatches


def training(experiment: Experiment, start: int) -> Iterator[dict[str, Any]]:
    """Train from step `start` on, and yield an entry for the record after each step.

    Raises:
        DivergedError: if the loss of the honest rows or a parameter is not finite.
        NonFiniteRowsError: if most rows are not finite.
        NonFiniteMemoryError: if the state of the robust step would not be finite.
    """
    config, batches = experiment.config, experiment.batches
    n_epochs = batches.epoch(config.n_steps)
    make_step = robust_step if config.workers is None else worker_round
    for step in range(start, config.n_steps):
        clock = Clock(experiment.device)
        factor = config.schedule.factor(batches.epoch(step), n_epochs)
        for group in experiment.optimizer.param_groups:
            group["lr"] = config.optimizer.lr * factor
        entry = make_step(experiment, step, clock)
        if experiment.average is not None:
            experiment.average.update_parameters(experiment.model)
            clock.lap("optimizer")
        if (step + 1) % config.evaluate_every == 0 or step + 1 == config.n_steps:
            if experiment.ranks is not None:
                experiment.ranks.check_same(experiment.model.parameters())
            if experiment.is_first:
                entry |= evaluate(
                    experiment.tested_model, experiment.data, config.threat.corruption
                )
            clock.lap("evaluation")
        yield entry | {"seconds": clock.seconds} | rank_seconds(experiment)


def robust_step(experiment: Experiment, step: int, clock: Clock) -> dict[str, Any]:
    """One step with rows of one batch; returns the entry for the record."""
    config, optimizer, threat = experiment.config, experiment.optimizer, experiment.config.threat
    bad_rows = threat.bad_rows(config.n_rows, seed=config.seed, step=step)
    inputs, labels = batch_of(experiment, step, bad_rows, clock)
    with reproducible_dropout("dropout", experiment, step):
        rows = experiment.source(inputs, labels)
    loss = honest_loss(experiment.source.losses, bad_rows)
    if experiment.worker_momentum is not None:
        # Attackers may change the rows in place, so they get a copy of the momentum.
        rows = experiment.source.layout.rows(experiment.worker_momentum(rows).matrix())
    clock.lap("gradient")
    arguments = call_arguments(experiment, step)
    clock.lap("aggregation")
    experiment.attack_state = threat.apply_attack(
        rows,
        bad_rows,
        seed=config.seed,
        step=step,
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
    # The optimizer's step delivers the block, so the residual is known only after it.
    result = optimizer.result
    assert result is not None
    entry = log_entry(experiment, step + 1, loss, bad_rows, result)
    if experiment.monitor is not None:
        entry |= suspicion(result, experiment.monitor, rows)
        clock.lap("monitor")
    return entry


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


def keep_direction(experiment: Experiment) -> None:
    """Keep the direction if the rule starts from the previous one."""
    result = experiment.optimizer.result
    assert result is not None
    if "reference" in experiment.config.rule.takes and not experiment.config.needs_trust:
        experiment.direction = result.direction.clone()
