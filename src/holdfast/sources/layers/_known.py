"""Layers with closed forms: from one call of a layer to the gradients of its parameters."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.module import _global_forward_hooks

from holdfast.sources.layers._convolution import ConvolutionWeight
from holdfast.sources.layers._embedding import EmbeddingWeight
from holdfast.sources.layers._layer_gradients import Explicit, LayerGradients
from holdfast.sources.layers._linear import LinearWeight

NORMALIZATIONS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _InstanceNorm, _BatchNorm)
KNOWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, *NORMALIZATIONS)


def is_known(module: nn.Module) -> bool:
    """Whether the module computes exactly what torch's own layer of its kind computes."""
    hooks = module._forward_hooks or module._forward_pre_hooks or _global_forward_hooks
    if hooks or "forward" in vars(module) or getattr(module, "scale_grad_by_freq", False):
        return False
    if not set(module._parameters) <= {"weight", "bias"}:  # pruned, or with weight norm
        return False
    # A subclass is known if it inherits the forward pass of the nearest class of torch.
    kinds = (
        kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.modules.")
    )
    original = next(kinds, nn.Module)
    is_torchs = issubclass(original, KNOWN) and type(module).forward is original.forward
    return is_torchs or _is_transposed_linear(module)


def _is_transposed_linear(module: nn.Module) -> bool:
    """Whether the module is the linear layer of GPT-2, which has a weight [inputs, outputs]."""
    kind = type(module)
    return (kind.__module__, kind.__qualname__) == ("transformers.pytorch_utils", "Conv1D")


def keeps_samples_apart(module: nn.Module, ndim: int, dimension: int) -> bool:
    """Whether a known layer takes inputs of `ndim` dimensions with samples along this one."""
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return dimension < ndim - len(module.normalized_shape)
    if isinstance(module, nn.Linear) or _is_transposed_linear(module):
        return dimension < ndim - 1
    return isinstance(module, nn.Embedding) or dimension == 0


def gradients_of(module: nn.Module, inputs: Tensor, gradients: Tensor) -> list[LayerGradients]:
    """Gradients of a known layer's parameters, from its inputs and output gradients [n, ...]."""
    found: list[LayerGradients] = []
    for name in ("weight", "bias"):
        parameter = module._parameters.get(name)
        if parameter is None or not parameter.requires_grad or not parameter.numel():
            continue
        if name == "weight" and not isinstance(module, NORMALIZATIONS):
            found.append(_of_weight(module, parameter, inputs, gradients))
            continue
        # The outputs are `weight * normalized + bias`, at every position that shares them.
        rows = (
            gradients if name == "bias" else gradients * _normalized(module, inputs).to(gradients)
        )
        shared = _shared_dimensions(module, gradients.ndim)
        found.append(Explicit((parameter,), rows.sum(shared) if shared else rows))
    return found


def _shared_dimensions(module: nn.Module, ndim: int) -> list[int]:
    """Dimensions of the outputs, without the samples, along which a bias or scale is repeated."""
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return list(range(1, ndim - len(module.normalized_shape)))
    if isinstance(module, nn.Linear) or _is_transposed_linear(module):
        return list(range(1, ndim - 1))
    return list(range(2, ndim))  # all but the channels


def _of_weight(
    module: nn.Module, weight: Tensor, inputs: Tensor, gradients: Tensor
) -> LayerGradients:
    if isinstance(module, _ConvNd):
        padding = tuple(module._reversed_padding_repeated_twice)
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        stride, dilation = tuple(module.stride), tuple(module.dilation)
        return ConvolutionWeight(
            (weight,), inputs, gradients, stride, dilation, module.groups, padding, mode
        )
    n = len(inputs)
    flat = gradients.reshape(n, -1, gradients.shape[-1])
    if isinstance(module, nn.Linear):
        return LinearWeight((weight,), inputs.reshape(n, -1, inputs.shape[-1]), flat)
    if _is_transposed_linear(module):  # the transpose of a sum of outer products
        return LinearWeight((weight,), flat, inputs.reshape(n, -1, inputs.shape[-1]))
    assert isinstance(module, nn.Embedding)
    indices = inputs.reshape(n, -1)
    if module.padding_idx is not None:  # the padding entry has no gradient
        flat = flat.masked_fill((indices == module.padding_idx)[..., None], 0.0)
    return EmbeddingWeight((weight,), indices, flat)


@torch.no_grad()
def _normalized(module: nn.Module, inputs: Tensor) -> Tensor:
    """The outputs of a normalization layer without scale and shift."""
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
    deviation = (module.running_var.view(shape) + module.eps).rsqrt()
    return (inputs - module.running_mean.view(shape)) * deviation
