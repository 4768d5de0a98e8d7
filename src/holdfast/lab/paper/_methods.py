"""The methods that the paper compares, and those that stand beside them here."""

from typing import Any

from holdfast.lab.config import parse_rule
from holdfast.lab.optimizers import OptimizerSpec
from holdfast.lab.paper._plan import Variant
from holdfast.lab.schedules import Schedule

SGD, CMD, GMD, BGMD = "SGD", "CmD", "GmD", "BGmD"
ALGORITHM_1 = "Algorithm 1"
PUBLISHED = "published BGmD"
FILTERED = "BGmD, filter"

RULES = {
    SGD: "mean",
    CMD: "coordinate-median",
    GMD: "geometric-median",
    BGMD: "bgmd",
    ALGORITHM_1: "bgmd-paper",
    PUBLISHED: "bgmd-published",
    FILTERED: "bgmd(aggregator='covariance-filter')",
}
"""The rule behind each name. BGmD has the robust memory; Algorithm 1 the averaged one, as printed; the filter is the covariance filter in place of the median."""

PAPER_COLUMN = {ALGORITHM_1: BGMD, PUBLISHED: BGMD}
"""Whose figures in the paper a method that is not in its tables has to be held against."""


def methods(variant: Variant) -> list[str]:
    """The columns of a table: the paper's four, then its own algorithm to the letter or as published, then the filter."""
    return [SGD, CMD, GMD, BGMD, ALGORITHM_1 if variant == "paper" else PUBLISHED, FILTERED]


def rule_parts(
    text: str, optimizer: OptimizerSpec, schedule: Schedule, *, memory: str | None = None
) -> dict[str, Any]:
    """Aggregator, selector and memory, whose units fit optimizer and schedule."""
    return parse_rule(
        text, memory=memory, is_exact=optimizer.is_plain and not schedule.goes_to_zero
    )
