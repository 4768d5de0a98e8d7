"""What one sample shows about a model and its loss, in passes without side effects."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.sources._batch_loss import Objective, Reduction, check_differentiable, picked
from holdfast.sources._buffers import without_side_effects


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Forward passes in evaluation mode that leave modes, random state and buffers unchanged."""
    modes = {module: module.training for module in model.modules()}
    with without_side_effects(model):
        try:
            # Not model.eval(), which a model may override with effects of its own.
            for module in modes:
                module.training = False
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def saved_bytes(objective: Objective, batch: Any) -> int:
    """The size of the tensors that the forward pass of one sample saves, without the parameters.

    Checks that the loss can be differentiated, which `torch.func` does not: it returns zeros.
    """
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        check_differentiable(objective.total(_copies(batch, 1)))
    own = {parameter.untyped_storage().data_ptr() for parameter in objective.model.parameters()}
    return sum(size for pointer, size in saved.items() if pointer not in own)


def check_reduction(objective: Objective, batch: Any) -> bool:
    """Check that the loss combines samples as its reduction says.

    Returns False if the first sample of this batch cannot tell.
    """
    try:
        with evaluated(objective.model), torch.no_grad():
            losses = [float(objective.total(_copies(batch, n))) for n in (1, 2, 3)]
    except Exception:  # a model that does not run in this mode or on one sample is not refused
        return True
    if not 0 < abs(losses[0]) < float("inf"):
        return False
    found = _reduction_of(losses)
    if found not in (None, objective.reduction):
        grows = "grows with" if found == "sum" else "does not depend on"
        requirement = f"be {found!r}, because the loss {grows} the number of samples"
        raise failure("reduction", requirement, repr(objective.reduction))
    return True


def _copies(batch: Any, n: int) -> Any:
    """The first sample n times, in memory of its own."""
    return picked(batch, torch.zeros(n, dtype=torch.int64))


def _reduction_of(losses: list[float]) -> Reduction | None:
    """The reduction by which one, two and three copies of a sample have these losses."""
    # Tight enough that a loss which draws random numbers, even in evaluation mode, fits neither,
    # and wide enough for the rounding of half precision (bfloat16: 0.004).
    ratios = [loss / losses[0] for loss in losses]
    if all(abs(ratio - 1) < 0.01 for ratio in ratios):
        return "mean"
    if all(abs(ratio / n_copies - 1) < 0.01 for n_copies, ratio in enumerate(ratios, 1)):
        return "sum"
    return None
