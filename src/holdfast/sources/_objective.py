"""What is differentiated: a model and a loss, called as the user's own loop would call them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.errors import NonFiniteRowsError

Reduction = Literal["mean", "sum"]
LossFunction = Callable[..., Tensor]


class Objective:
    """`loss_fn(model(inputs), targets)`, with `loss_fn(model(inputs))` where there are no targets.

    Inputs in a mapping go to the model by name, inputs in a tuple or list one after the other.

    Args:
        model: the model.
        loss_fn: the loss of a batch.
        reduction: what the loss does with the losses of single samples, "mean" or "sum"; by default the loss's own
            attribute `reduction`, if it has one, else "mean".
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, reduction: Reduction | None
    ) -> None:
        if not callable(loss_fn):
            raise failure(
                "loss_fn",
                "be a function of the model's output and the targets",
                type(loss_fn).__name__,
            )
        own = getattr(loss_fn, "reduction", None)
        if own in ("mean", "sum") and reduction not in (None, own):
            raise failure("reduction", f"be that of the loss, {own!r}", repr(reduction))
        if reduction not in (None, "mean", "sum"):
            raise failure("reduction", "be 'mean' or 'sum'", repr(reduction))
        self.model = model
        self.loss_fn = loss_fn
        self._adds_up = "sum" in (reduction, own)

    def __call__(self, batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch (inputs, targets)."""
        inputs, targets = batch
        if isinstance(inputs, Mapping):
            arguments, keywords = (), dict(inputs)
        else:
            arguments, keywords = (
                tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,),
                {},
            )
        output = self.model(*arguments, **keywords)
        loss = self.loss_fn(output) if targets is None else self.loss_fn(output, targets)
        if not isinstance(loss, Tensor) or not loss.is_floating_point():
            raise failure(
                "loss_fn",
                "return a floating tensor",
                loss.dtype if isinstance(loss, Tensor) else type(loss).__name__,
            )
        return loss

    def total(self, batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch as a scalar."""
        loss = self(batch)
        if loss.numel() != 1:
            raise failure(
                "loss_fn",
                "return a scalar (reduction='mean' or 'sum')",
                f"shape {tuple(loss.shape)}",
            )
        return loss.reshape(())

    def factor(self, n_rows: int) -> float:
        """What the gradient of one of `n_rows` slices is multiplied by, so that the mean of rows is the gradient of the whole batch."""
        return float(n_rows) if self._adds_up else 1.0


def check_losses(losses: Tensor) -> None:
    """At least half of the losses [n] are finite: else there is nothing to make a step of."""
    n_bad = int((~torch.isfinite(losses)).sum())
    if 2 * n_bad > len(losses):
        raise NonFiniteRowsError(
            f"`loss_fn` must be finite for at least half of the rows, got {n_bad} of {len(losses)} with NaN or infinity."
        )
