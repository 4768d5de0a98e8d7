"""The check of a robust step's saved state."""

from typing import Any

import torch
from torch import Tensor

from holdfast.checks import check_count, failure

KEYS = {"memory", "generator", "n_steps"}


def check_step_state(
    state: object, n_dimensions: int, memory_name: str
) -> tuple[Tensor | None, Tensor]:
    """The memory's state and the generator's, if `state` is what a step with such a memory saves."""
    if not isinstance(state, dict) or set(state) != KEYS:
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise failure("state", f"be a mapping with the keys {', '.join(sorted(KEYS))}", got)
    memory: Any = state["memory"]
    if memory is not None:
        is_dense = (
            isinstance(memory, Tensor) and memory.layout is torch.strided and not memory.is_meta
        )
        if (
            not is_dense
            or memory.dtype not in (torch.float32, torch.float64)
            or memory.ndim != n_dimensions
        ):
            wanted = {0: "None", 1: "None or a tensor [d]", 2: "None or a tensor [n, d]"}[
                n_dimensions
            ]
            got = (
                f"{memory.dtype} of shape {tuple(memory.shape)}"
                if isinstance(memory, Tensor)
                else type(memory).__name__
            )
            raise failure("state['memory']", f"be {wanted} for {memory_name}", got)
        if not bool(torch.isfinite(memory).all()):
            raise failure("state['memory']", "be finite", "NaN or infinity")
    check_count("state['n_steps']", state["n_steps"])
    generator: Any = state["generator"]
    try:
        torch.Generator().set_state(generator)
    except (RuntimeError, TypeError) as error:
        raise failure(
            "state['generator']", "be the state of a torch.Generator", str(error).splitlines()[0]
        ) from None
    return memory, generator
