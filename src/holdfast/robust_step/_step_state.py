"""The check of a step's saved state."""

from typing import Any

import torch
from torch import Tensor

from holdfast.checks import check_count, failure

KEYS = {"carried", "generator", "n_steps"}
SHAPES = {0: "None", 1: "None or a tensor [d]", 2: "None or a tensor [n, d]"}


def check_step_state(state: object, n_dimensions: int, owner: str) -> tuple[Tensor | None, Tensor]:
    """The memory and the generator's state, after checking that such a step saved `state`."""
    if not isinstance(state, dict) or set(state) != KEYS:
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise failure("state", f"be a mapping with the keys {', '.join(sorted(KEYS))}", got)
    carried = check_carried("state['carried']", state["carried"], n_dimensions, owner)
    check_count("state['n_steps']", state["n_steps"])
    generator: Any = state["generator"]
    try:
        torch.Generator().set_state(generator)
    except (RuntimeError, TypeError) as error:
        requirement = "be the state of a torch.Generator"
        raise failure("state['generator']", requirement, str(error).splitlines()[0]) from None
    return carried, generator


def check_carried(name: str, carried: Any, n_dimensions: int, owner: str) -> Tensor | None:
    """Check for None, or a finite tensor with so many dimensions."""
    if carried is None:
        return None
    is_tensor = isinstance(carried, Tensor)
    is_dense = is_tensor and carried.layout is torch.strided and not carried.is_meta
    is_wide = is_dense and carried.dtype in (torch.float32, torch.float64)
    if not is_wide or carried.ndim != n_dimensions:
        got = (
            f"{carried.dtype} of shape {tuple(carried.shape)}"
            if is_tensor
            else type(carried).__name__
        )
        raise failure(name, f"be {SHAPES[n_dimensions]} for {owner}", got)
    if not bool(torch.isfinite(carried).all()):
        raise failure(name, "be finite", "NaN or infinity")
    assert isinstance(carried, Tensor)
    return carried
