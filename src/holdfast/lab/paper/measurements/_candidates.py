"""Rules and steps as functions of rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from holdfast.lab.config import parse_rule
from holdfast.robust_step import RobustStep

Candidate = Callable[[Tensor], Tensor]

LR = 0.1
"""At which steps with a memory are made."""


def candidate(text: str) -> Candidate:
    """The rule or step that a text names, as a function [n, d] -> [d]; a step remembers what it did before."""
    step = RobustStep(**parse_rule(text), generator=torch.Generator().manual_seed(0))
    return lambda rows: step(rows, lr=LR).direction
