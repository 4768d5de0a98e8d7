"""Descriptions build torch's optimizers with their values and refuse rates that overflow."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from holdfast.lab.optimizers import Adam, AdamW, OptimizerSpec, Sgd, optimizers

CASES: list[tuple[OptimizerSpec, type[torch.optim.Optimizer], dict[str, Any], bool]] = [
    (Sgd(), torch.optim.SGD, {"lr": 0.01, "momentum": 0.0, "nesterov": False}, True),
    (
        Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-5),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-5},
        False,
    ),
    (Adam(), torch.optim.Adam, {"lr": 0.001, "betas": (0.9, 0.999), "weight_decay": 0.0}, False),
    (AdamW(), torch.optim.AdamW, {"lr": 0.001, "betas": (0.9, 0.999), "weight_decay": 0.01}, False),
    (Adam(lr=0.3, weight_decay=0.2), torch.optim.Adam, {"lr": 0.3, "weight_decay": 0.2}, False),
]


def test_an_optimizer_is_built_with_its_values() -> None:
    assert {spec.name for spec, *_ in CASES} == set(optimizers.names)
    for spec, expected, values, is_plain in CASES:
        built = spec.build([nn.Parameter(torch.zeros(2))])
        assert type(built) is expected, spec
        assert {key: built.defaults[key] for key in values} == values, spec
        assert spec.is_plain == is_plain, spec


def test_rates_that_overflow_are_refused() -> None:
    kinds: list[Any] = [Adam, AdamW, Sgd]
    for kind in kinds:
        for name in ("lr", "weight_decay"):
            kind(**{name: 1e30})
            message = f"`{name}` must be at most 1e+30, got 1.1e+30."
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                kind(**{name: 1.1e30})
