r"""BGMD under attack: a small network on real images, with up to 40 % bad gradient rows.

The bad rows are drawn anew at every step, and the attackers see all rows of the step. Each run
appends its test accuracy to the record, and runs of the record are skipped, so the sweep can be
stopped and started again. It ends with a table. From the project's root:

    python -m examples.bgmd_under_attack --seeds 1 --attacks "bit flip" --shares 0.4
    python -m examples.bgmd_under_attack --rules exact bgmd --seeds 5 \
        --record docs/results/bgmd_under_attack.jsonl --page docs/results/bgmd_under_attack.md
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import final

import torch
from examples.run_records import Lines, Run, chosen, show_table, spread_cell, sweep
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast import RobustStep, bgmd, preset
from holdfast.errors import NonFiniteMemoryError, NonFiniteRowsError
from holdfast.lab.data import Images, fashion_mnist_slice
from holdfast.robust_step import Step
from holdfast.seeds import stream
from holdfast.sources import MicroBatches
from holdfast.threats import (
    Adversaries,
    Attack,
    AttackContext,
    Hijack,
    LittleIsEnough,
    NoisyRows,
    ScaledFlip,
    Shadow,
)

N_ROWS, BATCH, LR, FRACTION = 20, 32, 0.1, 0.1
MEAN, DEVIATION = 0.286, 0.353  # of the pixels


STEPS: dict[str, Callable[[torch.Generator], Step]] = {
    "mean": lambda _: RobustStep("mean"),
    "exact": lambda _: RobustStep("geometric-median"),
    "bgmd": lambda generator: bgmd(fraction=FRACTION, generator=generator),
    "bgmd-paper": lambda generator: preset(f"bgmd-paper(fraction={FRACTION})", generator=generator),
    "filter": lambda _: RobustStep("covariance-filter"),
    "bgmd, filter": lambda generator: bgmd(
        fraction=FRACTION, rule="sketched | covariance-filter", generator=generator
    ),
    "radius filter": lambda _: RobustStep("radius-filter"),
}
"""Exact is the geometric median of whole rows; filter is the covariance filter, by itself and in
place of the median in BGMD; the radius filter is the default rule, for accidents."""


@final
@dataclass(frozen=True, kw_only=True)
class Lurk(Attack):
    """The mean on the heavier half of the columns, its opposite on the others, of honest length."""

    name = "lurk"
    aim = "Attack the columns outside a block of heavy columns."
    looks_at_honest = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        bad = context.mean.clone()
        light = context.honest.square().sum(0).argsort()[: len(bad) // 2]
        bad[light] = -bad[light].sign() * (context.honest.norm(dim=1).median() / len(light) ** 0.5)
        return bad * context.unit


@final
@dataclass(frozen=True, kw_only=True)
class Alone(Attack):
    """The mean, with 1e6 in one of the lightest columns: rarely drawn, and costly to miss."""

    name = "alone"
    aim = "Attack one column that the block misses."
    looks_at_honest = True

    def _bad_rows(self, context: AttackContext) -> Tensor:
        bad = (context.mean * context.unit).repeat(context.n_bad, 1)
        scores = context.honest.square().sum(0)
        light = scores.where(scores > 0, torch.inf).argsort()[: context.n_bad]
        bad[torch.arange(context.n_bad), light] = 1e6
        return bad


ATTACKS: dict[str, Attack] = {
    "bit flip": ScaledFlip(factor=100.0),
    "additive": NoisyRows(deviation=10.0),
    "shadow": Shadow(fraction=FRACTION),
    "hijack": Hijack(columns=200, size=1e4),
    "lurk": Lurk(),
    "alone": Alone(),
    "hijack and lie": Hijack(columns=2 * FRACTION, size=1e18, lie=1e3),
    "drift": LittleIsEnough(z=1.0),
}
"""The last one moves every column by one standard deviation, always to the same side."""


def network(seed: int) -> nn.Module:
    """784 inputs, 32 hidden units, 10 classes: 25,450 parameters."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    generator = stream(seed, "parameters")
    with torch.no_grad():
        for parameter in model.parameters():
            bound = (784 if 784 in parameter.shape or parameter.shape == (32,) else 32) ** -0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return model


def train(
    step: Step, attack: str | None, bad_fraction: float, seed: int, n_steps: int
) -> float | None:
    """Test accuracy in percent, averaged over the last quarter; None if training diverged.

    Under a strong attack the accuracy changes by several points from step to step.
    """
    data, test = fashion_mnist_slice("train"), fashion_mnist_slice("test")
    pixels, labels = normalized(data), data.labels
    model, generator = network(seed), stream(seed, "training")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    source = MicroBatches(model, cross_entropy, n_rows=N_ROWS, vectorized=True)
    adversaries = Adversaries(bad_fraction=bad_fraction)
    test_pixels, accuracies = normalized(test), []
    for t in range(n_steps):
        batch = torch.randint(0, len(labels), (N_ROWS * BATCH,), generator=generator)
        try:
            rows = source(pixels[batch], labels[batch])
        except NonFiniteRowsError:
            return None
        if attack is not None:
            rows = ATTACKS[attack](
                rows, adversaries.draw(N_ROWS, generator=generator), generator=generator
            )
        optimizer.zero_grad()
        try:
            step.backward(rows, lr=LR)
        except (NonFiniteRowsError, NonFiniteMemoryError):
            return None
        optimizer.step()
        if 4 * t >= 3 * n_steps and (n_steps - 1 - t) % 5 == 0:
            with torch.no_grad():
                accuracies.append(
                    100 * float((model(test_pixels).argmax(1) == test.labels).double().mean())
                )
    return mean(accuracies)


def normalized(data: Images) -> Tensor:
    """Pixels of mean zero and deviation one."""
    return (data.scaled() - MEAN) / DEVIATION


def measured(run: Run) -> Run:
    """The accuracy that a run reaches."""
    step = STEPS[run["rule"]](stream(run["seed"], "step"))
    attack = None if run["attack"] == "none" else run["attack"]
    accuracy = train(step, attack, run["share"], run["seed"], run["steps"])
    return {"accuracy": None if accuracy is None else round(accuracy, 3)}


def summary(done: list[Run]) -> Lines:
    """One line per attack and share, one cell per rule: mean and standard deviation over seeds."""
    rules = [rule for rule in STEPS if any(run["rule"] == rule for run in done)]
    conditions = sorted(
        {(run["attack"], run["share"]) for run in done},
        key=lambda pair: (["none", *ATTACKS].index(pair[0]), pair[1]),
    )
    lines = [["attack", "bad rows", *rules]]
    for attack, share in conditions:
        same = chosen(done, attack=attack, share=share)
        cells = [spread_cell(chosen(same, rule=rule)) for rule in rules]
        lines.append([attack, f"{100 * share:.0f} %", *cells])
    return lines


def main() -> None:
    """Read the arguments, run, show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    some, attacks = partial(parser.add_argument, nargs="+"), ["none", *ATTACKS]
    some("--rules", choices=STEPS, default=list(STEPS), metavar="RULE", help=", ".join(STEPS))
    some("--attacks", choices=attacks, default=attacks, metavar="ATTACK", help=", ".join(attacks))
    some("--shares", type=float, default=[0.2, 0.3, 0.4], help="shares of bad rows, below 0.5")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    record = Path("bgmd_under_attack.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose table is rewritten")
    given = parser.parse_args()
    if not all(0 <= share < 0.5 for share in given.shares):
        parser.error(f"--shares must be in [0, 0.5), got {given.shares}.")
    runs = [
        {"attack": attack, "share": share, "rule": rule, "seed": seed, "steps": given.steps}
        for attack in given.attacks
        for share in (given.shares if attack != "none" else [0.0])
        for rule in given.rules
        for seed in range(given.seeds)
    ]
    try:
        done = sweep(runs, given.record, measured)
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None
    show_table(summary(chosen(done, steps=given.steps)), given.page)


if __name__ == "__main__":
    main()
