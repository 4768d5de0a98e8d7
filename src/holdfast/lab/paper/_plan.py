"""Plans and recipes of experiments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from holdfast.lab.config import Config
from holdfast.lab.paper.measurements import Measurement
from holdfast.lab.records import Labels

Variant = Literal["paper", "published"]
"""Variant of an experiment: as in the paper's text, or as in the runs published with it."""

Size = Literal["smoke", "quick", "full"]
"""Size of an experiment: a test of about a minute, some hours, or as in the paper."""

Seeds = Sequence[int]


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs and measurements of an experiment, each with its labels in the study.

    Args:
        title: heading in a report.
        about: the setting with the number of steps, in a sentence or two.
        note: what a reader of the results must know; may be empty.
        runs: runs in the order in which they are made; lines and columns of a report follow the
            order in which their labels appear.
        measured: measurements, which need no training.
        paper: labels and values of the paper's figures.
    """

    title: str
    about: str
    note: str = ""
    runs: tuple[tuple[Config, Labels], ...] = ()
    measured: tuple[tuple[Measurement, Labels], ...] = ()
    paper: tuple[Labels, ...] = ()

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configurations of the runs."""
        return tuple(config for config, _ in self.runs)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements without labels."""
        return tuple(measurement for measurement, _ in self.measured)


@final
@dataclass(frozen=True)
class Recipe:
    """One of the paper's tables or figures.

    Args:
        name: name on the command line.
        title: what it shows.
        plan: returns the plan.
        n_seeds: default number of seeds for each size.
        variants: the variants that it has.
    """

    name: str
    title: str
    plan: Callable[[Variant, Size, Seeds], Plan]
    n_seeds: dict[Size, int]
    variants: tuple[Variant, ...] = ("paper", "published")
