"""Scales and shifts of normalisation layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from holdfast.sources.layers._explicit import Explicit
from holdfast.sources.layers._layer_gradients import LayerGradients

NORMALISATIONS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _InstanceNorm, _BatchNorm)


def affine_gradients(module: nn.Module, inputs: Tensor, gradients: Tensor) -> list[LayerGradients]:
    """The gradients of scale and shift, summed over the positions that share them.

    What left the layer is `weight * normalized + bias`, so a sample's gradient of the scale is its output gradient times its normalised input.
    """
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        shared = list(
            range(1, inputs.ndim - len(module.normalized_shape))
        )  # all but samples and the normalised shape
    else:
        shared = list(range(2, inputs.ndim))  # all but samples and channels
    found: list[LayerGradients] = []
    for name in ("weight", "bias"):
        parameter = module._parameters.get(name)
        if parameter is not None and parameter.requires_grad and parameter.numel():
            rows = (
                gradients * _normalized(module, inputs).to(gradients)
                if name == "weight"
                else gradients
            )
            found.append(Explicit((parameter,), rows.sum(shared) if shared else rows))
    return found


@torch.no_grad()
def _normalized(module: nn.Module, inputs: Tensor) -> Tensor:
    """What the module returns without scale and shift."""
    if isinstance(module, nn.LayerNorm):
        return functional.layer_norm(inputs, module.normalized_shape, None, None, module.eps)
    if isinstance(module, nn.RMSNorm):
        return functional.rms_norm(inputs, module.normalized_shape, None, module.eps)
    if isinstance(module, nn.GroupNorm):
        return functional.group_norm(inputs, module.num_groups, None, None, module.eps)
    assert isinstance(module, (_InstanceNorm, _BatchNorm))
    if isinstance(module, _InstanceNorm) and (module.training or module.running_mean is None):
        return functional.instance_norm(inputs, eps=module.eps)
    assert module.running_mean is not None
    assert module.running_var is not None
    shape = (-1, *[1] * (inputs.ndim - 2))
    return (inputs - module.running_mean.view(shape)) * (
        module.running_var.view(shape) + module.eps
    ).rsqrt()
