"""The trajectory of each preset, pinned: a change of any digit that counts must be meant.

HOLDFAST_REWRITE=1 writes the file anew.
"""

import json
import os
from pathlib import Path

import pytest
import torch

from holdfast import preset
from holdfast.robust_step import presets
from holdfast.seeds import stream
from tests.samples import gaussian

PINNED = Path(__file__).with_name("trajectory.json")


def trajectory(name: str) -> list[dict[str, object]]:
    """Eight steps in float64, with 4 of 11 rows bad from the fourth on, and a decaying rate."""
    step = preset(f"{name}(fraction=0.1)", generator=stream(3, "trajectory"))
    found: list[dict[str, object]] = []
    for t in range(8):
        rows = 1.0 + gaussian(11, 300, t, torch.float64)
        rows[: 4 if t >= 3 else 0] *= -50
        result = step(rows, lr=0.1 / (1 + t))
        found.append(
            {
                "columns": result.block.columns.tolist()[:5],
                "direction": float(result.direction.norm()),
                "memory": result.carried_norm,
                "residual": result.residual,
            }
        )
    return found


def test_trajectories_are_as_pinned() -> None:
    found = {name: trajectory(name) for name in presets}
    if os.environ.get("HOLDFAST_REWRITE"):
        PINNED.write_text(json.dumps(found, indent=1) + "\n")
    pinned = json.loads(PINNED.read_text())
    for name, steps in found.items():
        for step, expected in zip(steps, pinned[name], strict=True):
            assert step["columns"] == expected["columns"]
            for key in ("direction", "memory", "residual"):
                assert step[key] == pytest.approx(expected[key], rel=1e-6)
