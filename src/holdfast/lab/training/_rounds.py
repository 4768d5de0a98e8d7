"""A round of workers, as one step of the training loop."""

from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate
from holdfast.lab.schemes import Liars, Sent
from holdfast.lab.training._entries import log_entry, mean_weights, named_suspects
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._step_parts import (
    Clock,
    attack_directions,
    batch_of,
    check_parameters,
    honest_loss,
    reproducible_dropout,
)
from holdfast.lab.training._worker_rounds import WorkerRounds
from holdfast.monitor import have_little_weight
from holdfast.robust_step import StepResult
from holdfast.seeds import stream

FEWEST_COLUMNS = 3
"""A state of attackers with fewer entries than this is none of columns."""


def worker_round(experiment: Experiment, step: int, clock: Clock) -> dict[str, Any]:
    """One round of all workers; returns the entry for the record."""
    config, rounds = experiment.config, experiment.rounds
    assert rounds is not None
    bad_rows = config.threat.bad_rows(config.n_rows, seed=config.seed, step=step)
    present = present_workers(experiment, bad_rows, step)
    inputs, labels = batch_of(experiment, step, bad_rows, clock)
    with reproducible_dropout("dropout", experiment, step):
        updates, losses = updates_of(experiment, rounds, inputs, labels)
    loss = honest_loss(losses, bad_rows)
    clock.lap("gradient")
    lie = config.threat.lie
    liars = None if lie is None else Liars(lie, bad_rows)
    sent = rounds.scheme.send(updates, present, liars=liars)
    clock.lap("exchange")
    attack_round(experiment, rounds, sent, bad_rows, present, step)
    clock.lap("attack")
    aggregate = rounds.scheme.aggregate(sent)
    clock.lap("aggregation")
    rounds.outer(sent.block, aggregate.vector)
    check_parameters(experiment.model)
    clock.lap("optimizer")
    result = result_of(rounds, sent, aggregate, present, bad_rows)
    entry = log_entry(experiment, step + 1, loss, bad_rows, result)
    entry |= {"n_bytes": sent.n_bytes, **rounds.scheme.figures()}
    clock.lap("exchange")
    entry |= suspicion_of_workers(experiment, aggregate, present)
    clock.lap("monitor")
    return entry


def suspicion_of_workers(
    experiment: Experiment, aggregate: Aggregate, present: Tensor
) -> dict[str, Any]:
    """Show the round to the monitor; the workers that are suspect, as in the entry of a step."""
    monitor, weights = experiment.monitor, mean_weights(aggregate)
    assert monitor is not None, "workers are owners"
    is_out = aggregate.rejected if weights is None else have_little_weight(weights)
    before = monitor.suspects()
    monitor.observe(None, is_out | aggregate.rejected, rows=present.tolist())
    return named_suspects(monitor, before)


def present_workers(experiment: Experiment, bad_rows: Tensor, step: int) -> Tensor:
    """[p] the workers that take part in this round, increasing."""
    config = experiment.config
    assert config.workers is not None
    honest = (~bad_rows).nonzero().flatten()
    drawn = torch.randperm(len(honest), generator=stream(config.seed, "absent", step))
    absent = honest[drawn[: config.workers.n_absent(config.n_rows)]]
    return torch.ones(config.n_rows).index_fill_(0, absent, 0.0).nonzero().flatten()


def updates_of(
    experiment: Experiment, rounds: WorkerRounds, inputs: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """[n, d] the updates of all workers, and [n] their losses."""
    if rounds.local is not None:
        updates, losses = rounds.local.updates(inputs, labels, experiment.lr)
    else:
        source, decay = experiment.source, experiment.config.optimizer.weight_decay
        (updates,) = source(inputs, labels).tensors
        if decay:
            updates += decay * source.layout.values()
        updates *= experiment.lr
        losses = source.losses
    if experiment.worker_momentum is not None:
        updates = experiment.worker_momentum(updates).matrix()
    return updates, losses


def attack_round(
    experiment: Experiment,
    rounds: WorkerRounds,
    sent: Sent,
    bad_rows: Tensor,
    present: Tensor,
    step: int,
) -> None:
    """Overwrite what bad workers send."""
    config, columns = experiment.config, sent.block.columns.to(sent.matrix.device)
    directions = attack_directions(experiment, bad_rows, step)
    known = AttackerColumns(experiment.attack_state, present, columns)
    learned = config.threat.apply_attack(
        sent.matrix,
        bad_rows[present],
        seed=config.seed,
        step=step,
        state=known.here(),
        rule=rounds.scheme.known_rule,
        directions={name: vector[columns] for name, vector in directions.items()},
        sections=sent.sections,
    )
    experiment.attack_state = known.after(learned, config.n_rows, rounds.scheme.layout.d)


@final
class AttackerColumns:
    """What attackers carry from round to round, of which a round shows some rows and columns.

    A state with the shape of the rows, or of one row, is kept for all workers and columns.

    Args:
        state: the state, for all workers and columns.
        present: [p] workers of the round.
        columns: [k] columns of the round.
    """

    def __init__(self, state: Tensor | None, present: Tensor, columns: Tensor) -> None:
        self._state, self._present, self._columns = state, present, columns

    def here(self) -> Tensor | None:
        """The state as the attack of this round takes it; None if nothing is known here."""
        state = self._state
        if state is None or state.shape[-1] < FEWEST_COLUMNS:
            return state
        part = state[..., self._columns]
        part = part[self._present] if part.ndim == 2 else part
        return part if bool(part.any()) else None

    def after(self, learned: Tensor | None, n: int, d: int) -> Tensor | None:
        """The state after the round, from what the attack has `learned` in it."""
        if learned is None or learned.shape[-1] < FEWEST_COLUMNS:
            return learned
        shape = (n, d) if learned.ndim == 2 else (d,)
        state = learned.new_zeros(shape) if self._state is None else self._state.clone()
        if learned.ndim == 2:
            state[self._present[:, None], self._columns] = learned
        else:
            state[self._columns] = learned
        return state


def result_of(
    rounds: WorkerRounds, sent: Sent, aggregate: Aggregate, present: Tensor, bad_rows: Tensor
) -> StepResult:
    """The result of the round in terms of all workers; who is absent was not rejected.

    What is carried, and its share of the whole, is that of honest workers.
    """
    n = rounds.scheme.n
    if len(present) < n:
        is_present = torch.zeros(n, dtype=torch.bool).index_fill_(0, present, True)
        aggregate = aggregate.for_all(present, n)
        aggregate = replace(aggregate, rejected=aggregate.rejected & is_present)
    norms, is_bad = rounds.scheme.kept_norms().cpu().double(), bad_rows[present]
    kept, residual = float(norms[present][~is_bad].square().sum()), 0.0
    if kept > 0:
        lengths = torch.linalg.vector_norm(sent.matrix, dim=1).cpu().double()
        residual = kept / (kept + float(lengths[~is_bad].square().sum()))
    carried = float(norms[~bad_rows].mean())
    return StepResult(aggregate.vector, sent.block, aggregate, residual, carried)
