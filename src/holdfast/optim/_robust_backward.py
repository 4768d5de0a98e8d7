from typing import Any

import torch
from torch import nn

from holdfast.aggregators import Aggregator
from holdfast.checks import check_instance, failure
from holdfast.robust_step import RobustStep, StepResult
from holdfast.sources import LayerGrams, LossFunction


def robust_backward(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any = None,
    *,
    aggregator: Aggregator,
    generator: torch.Generator | None = None,
) -> StepResult:
    """Add the aggregate of the samples' gradients to `p.grad`, without the matrix of them.

    Replaces `loss_fn(model(inputs), targets).backward()` by a step with that rule on the rows of
    :class:`~holdfast.sources.LayerGrams`, which states the supported models. In a loop, keep such a
    source and a step instead: the source then checks the model only once. The result holds the
    weight of every sample, and which samples were rejected.

    Args:
        model: the model.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar or the losses of the
            samples.
        inputs: inputs of the model, with samples along the first dimension.
        targets: targets of the loss, with samples along the first dimension; None without targets.
        aggregator: any rule in Gram space, or a pipeline of such rules.
        generator: source of random numbers, for rules that need one.

    Example:
        >>> from holdfast.aggregators import GeometricMedian
        >>> model = nn.Linear(2, 1)
        >>> x, y = torch.randn(7, 2), torch.zeros(7, 1)
        >>> y[0] = 1e9
        >>> result = robust_backward(model, nn.MSELoss(), x, y, aggregator=GeometricMedian())
        >>> bool(model.weight.grad.norm() < 100)
        True
    """
    check_instance("aggregator", aggregator, Aggregator)
    if generator is None and "generator" in aggregator.needs:
        raise failure("generator", f"be given to {aggregator!r}", None)
    rows = LayerGrams(model, loss_fn)(inputs, targets)
    return RobustStep(aggregator, generator=generator).backward(rows)
