"""What a recipe returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from holdfast.lab.config import Config
from holdfast.lab.paper.measurements import Measurement
from holdfast.lab.records.views import View

Variant = Literal["paper", "published"]
"""Of an experiment: as the paper's text says, or as the runs published with it were."""

Size = Literal["smoke", "quick", "full"]
"""Of an experiment: about a minute to see that all works, some hours, or what the paper did."""

Seeds = Sequence[int]


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment that can be made.

    Args:
        title: for people.
        about: the setting, in a sentence or two, with the number of steps.
        configs: the runs, in the order in which they are wanted.
        measurements: what is found without training.
        views: how the results are shown.
    """

    title: str
    about: str
    configs: tuple[Config, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    views: tuple[View, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One of the paper's tables or figures.

    Args:
        name: on the command line.
        title: what it shows.
        variants: the forms it has.
        n_seeds: how many seeds each size has, unless others are asked for.
        plan: makes the plan.
    """

    name: str
    title: str
    variants: tuple[Variant, ...] = ("paper", "published")
    n_seeds: dict[Size, int]
    plan: Callable[[Variant, Size, Seeds], Plan]
