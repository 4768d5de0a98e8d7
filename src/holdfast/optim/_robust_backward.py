from typing import Any

import torch
from torch import nn

from holdfast.aggregators import Aggregator
from holdfast.checks import failure
from holdfast.robust_step import RobustStep, StepResult
from holdfast.sources import LayerGrams, LossFunction


def robust_backward(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any = None,
    *,
    rule: Aggregator | str = "radius-filter",
    generator: torch.Generator | None = None,
) -> StepResult:
    """Add the aggregate of the samples' gradients to `p.grad`, without the matrix of them.

    Replaces `loss_fn(model(inputs), targets).backward()`. It applies the rule to the rows of
    :class:`~holdfast.sources.LayerGrams`, whose documentation lists the supported models. In a
    loop, create such a source and a step once instead, so that the model is checked only once. The
    result has the weight of every sample and the mask of rejected samples.

    Args:
        model: the model.
        loss_fn: called as `loss_fn(model(inputs), targets)`; returns a scalar or the losses of the
            samples.
        inputs: inputs of the model, with samples along the first dimension.
        targets: targets of the loss, with samples along the first dimension; None without targets.
        rule: any rule in Gram space or its name, or a pipeline of such rules.
        generator: source of random numbers, for rules that need one.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> x, y = torch.randn(7, 2), torch.zeros(7, 1)
        >>> y[0] = 1e9
        >>> result = robust_backward(model, nn.MSELoss(), x, y, rule="geometric-median")
        >>> bool(model.weight.grad.norm() < 100)
        True
    """
    step = RobustStep(rule, generator=generator)
    if generator is None and "generator" in step.rule.needs:
        raise failure("generator", f"be given to {step.rule}", None)
    return step.backward(LayerGrams(model, loss_fn)(inputs, targets))
