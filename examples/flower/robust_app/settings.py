"""What a run is made of, as it stands in pyproject.toml and travels to the clients."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from holdfast.checks import (
    check_count,
    check_flag,
    check_fraction,
    check_positive,
    check_share,
    failure,
)
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.seeds import stream
from holdfast.threats import Adversaries, Attack, attacks, corruptions


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run.

    Args:
        data: data set by name; `holdfast data fetch NAME` brings it.
        model: architecture by name.
        partition: how training images are divided among the clients.
        n_clients: number of clients; client i is the node with `partition-id` i.
        n_rounds: number of rounds.
        local_epochs: passes over its images that a client makes in a round.
        local_steps: number of steps per round instead; with 1, clients send a gradient, as in the
            paper.
        batch_size: images in a client's step.
        optimizer: that of the clients, new at every round.
        schedule: of the learning rate, over all epochs of the run.
        strategy: one of Flower's, such as `"FedAvg"` or `"FedAdam(eta=0.01)"`.
        rule: Holdfast's rule in front of it; empty for Flower's strategy as it is.
        momentum: of the worker momentum that clients keep between rounds; 0 for none.
        send: share of the columns that clients send; below 1 they exchange an agreed block, and
            keep what they have not sent.
        bad_fraction: share of the clients that are bad.
        redrawn: whether bad clients are drawn again at every round, as in the paper.
        attack: what bad clients send. An attack that needs the updates of others, such as
            `little-is-enough` or `huddle`, is applied at the server's door, to all replies at once.
        corruption: what bad clients do to their own images, such as `wrong-labels`.
        timeout: seconds that the server waits for the replies of a round.
        min_nodes: nodes without which no round starts.
        fraction_evaluate: share of the nodes that evaluate the model on images of their own.
        seed: root of all random numbers.
        output: file that gets a line of JSON per round; empty for none.
        record: new folder for a record of the rounds, for `holdfast report`; empty for none.
    """

    data: str = "fashion-mnist"
    model: str = "lenet"
    partition: str = "shards(n_shards=80)"
    n_clients: int = 10
    n_rounds: int = 20
    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 64
    optimizer: str = "sgd(lr=0.05)"
    schedule: str = "constant"
    strategy: str = "FedAvg"
    rule: str = "radius-filter"
    momentum: float = 0.0
    send: float = 1.0
    bad_fraction: float = 0.0
    redrawn: bool = False
    attack: str = ""
    corruption: str = ""
    timeout: float = 3600.0
    min_nodes: int = 2
    fraction_evaluate: float = 0.0
    seed: int = 0
    output: str = ""
    record: str = ""

    def __post_init__(self) -> None:
        # TOML and Flower tell 1 from 1.0; people do not.
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in (float, "float") and type(value) is int:
                object.__setattr__(self, field.name, float(value))
        for name in ("n_clients", "n_rounds", "batch_size", "local_epochs", "min_nodes"):
            check_count(name, getattr(self, name), at_least=1)
        check_count("local_steps", self.local_steps)
        check_count("seed", self.seed)
        check_flag("redrawn", self.redrawn)
        check_share("momentum", self.momentum, below=1)
        if not 0 <= self.fraction_evaluate <= 1:
            raise failure("fraction_evaluate", "be in [0, 1]", self.fraction_evaluate)
        check_fraction("send", self.send)
        check_positive("timeout", self.timeout)
        # Parsed here, so that a mistake ends the run before any client has worked.
        partitions.parse(self.partition)
        optimizers.parse(self.optimizer)
        schedules.parse(self.schedule)
        attack = self.parsed_attack
        if attack is not None and attack.needs_directions:
            needed = ", ".join(sorted(attack.needs_directions))
            raise failure("attack", "be one that an app can make", f"one that needs {needed}")
        if attack is not None and self.send < 1 and not is_made_alone(attack):
            raise failure("attack", "need only the own update in an exchange", repr(self.attack))
        if self.corruption:
            corruptions.parse(self.corruption)
        if self.record and not self.rule:
            raise failure("rule", "be given for a record, which says whom it rejected", "none")
        if self.attack and self.corruption:
            raise failure("attack", "be empty beside a corruption", repr(self.attack))

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Settings":
        """From a configuration of Flower's; what it does not hold keeps its default.

        Example:
            >>> Settings.read({"n-rounds": 3}).n_rounds
            3
        """
        known = {field.name.replace("_", "-"): field for field in fields(cls)}
        unknown = sorted(set(config) - set(known))
        if unknown:
            raise failure("config", f"have only keys among {', '.join(known)}", unknown)
        return cls(**{known[key].name: value for key, value in config.items()})

    def config(self) -> dict[str, Any]:
        """All of them as a configuration of Flower's."""
        return {key.replace("_", "-"): value for key, value in asdict(self).items()}

    @property
    def parsed_attack(self) -> Attack | None:
        """What bad clients send instead of their updates."""
        return attacks.parse(self.attack) if self.attack else None

    def bad_clients(self, server_round: int) -> Tensor:
        """Bool [n_clients], True for the bad ones; clients and server draw the same."""
        adversaries = Adversaries(bad_fraction=self.bad_fraction, redrawn=self.redrawn)
        drawn_at = server_round if self.redrawn else 0
        return adversaries.draw(
            self.n_clients, generator=stream(self.seed, "bad clients", drawn_at)
        )


def is_made_alone(attack: Attack) -> bool:
    """Whether a client can make the attack from its own update and nothing else.

    Example:
        >>> is_made_alone(attacks.parse("scaled-flip")), is_made_alone(attacks.parse("huddle"))
        (True, False)
    """
    return not (attack.looks_at_honest or attack.takes_state or attack.needs - {"generator"})


def one_row(update: Tensor) -> tuple[Tensor, Tensor]:
    """The update [d] as rows [1, d], and the mask that says they are bad."""
    return update[None], torch.ones(1, dtype=torch.bool)
