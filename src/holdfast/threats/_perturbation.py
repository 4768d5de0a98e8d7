"""Which way, and among which distances, an attack that hides near the honest rows goes."""

from typing import Literal

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.threats._attack_context import AttackContext

Direction = Literal["unit", "sign", "std"]


def check_direction(direction: object) -> None:
    """The name of a direction."""
    if direction not in ("unit", "sign", "std"):
        raise failure("direction", "be 'unit', 'sign' or 'std'", repr(direction))


def perturbation(context: AttackContext, direction: Direction) -> Tensor:
    """[d] the honest mean at length 1, its signs, or the honest standard deviations."""
    if direction == "unit":
        return of_length_one(context.mean)
    return context.mean.sign() if direction == "sign" else context.spread


def deviations_and_products(context: AttackContext) -> tuple[Tensor, Tensor]:
    """The deviations [h, d] of the honest rows from their mean, and their inner products [h, h] in float64 on the CPU."""
    deviations = context.honest - context.mean
    return deviations, (deviations @ deviations.T).cpu().double()


def of_length_one(vector: Tensor) -> Tensor:
    """The vector at length 1; a zero vector as it is."""
    length = float(torch.linalg.vector_norm(vector))
    return vector / length if length > 0 else vector
