"""From one call of a module to the gradients of its parameters."""

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.module import _global_forward_hooks

from holdfast.sources.layers._convolution import ConvolutionWeight
from holdfast.sources.layers._embedding import EmbeddingWeight
from holdfast.sources.layers._explicit import Explicit
from holdfast.sources.layers._layer_gradients import LayerGradients
from holdfast.sources.layers._linear import LinearWeight
from holdfast.sources.layers._normalisation import NORMALISATIONS, affine_gradients

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
KNOWN = (nn.Linear, *CONVOLUTIONS, nn.Embedding, *NORMALISATIONS)


def is_known(module: nn.Module) -> bool:
    """Whether the module is a layer with short forms: it computes what torch's layer of its kind computes, and nothing else."""
    is_own = (
        "forward" in vars(module)
        or module._forward_hooks
        or module._forward_pre_hooks
        or _global_forward_hooks
    )
    if (
        is_own
        or not set(module._parameters) <= {"weight", "bias"}
        or getattr(module, "scale_grad_by_freq", False)
    ):
        return False
    torchs = next(
        (kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.modules.")),
        nn.Module,
    )
    return issubclass(torchs, KNOWN) and type(module).forward is torchs.forward


def gradients_of(module: nn.Module, inputs: Tensor, gradients: Tensor) -> list[LayerGradients]:
    """The gradients of a known layer's trainable parameters, from what entered it and the gradients with respect to what left it."""
    if isinstance(module, NORMALISATIONS):
        return affine_gradients(module, inputs, gradients)
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    found: list[LayerGradients] = []
    if weight is not None and weight.requires_grad and weight.numel():
        found.append(_of_weight(module, weight, inputs, gradients))
    if bias is not None and bias.requires_grad and bias.numel():
        channel = 1 if isinstance(module, _ConvNd) else gradients.ndim - 1
        positions = [dimension for dimension in range(1, gradients.ndim) if dimension != channel]
        found.append(Explicit((bias,), gradients.sum(positions) if positions else gradients))
    return found


def _of_weight(
    module: nn.Module, weight: Tensor, inputs: Tensor, gradients: Tensor
) -> LayerGradients:
    if isinstance(module, nn.Linear):
        n = len(inputs)
        return LinearWeight(
            (weight,),
            inputs.reshape(n, -1, inputs.shape[-1]),
            gradients.reshape(n, -1, gradients.shape[-1]),
        )
    if isinstance(module, nn.Embedding):
        n = len(inputs)
        flat = gradients.reshape(n, -1, gradients.shape[-1])
        indices = inputs.reshape(n, -1)
        if module.padding_idx is not None:
            flat = flat.masked_fill((indices == module.padding_idx)[..., None], 0.0)
        return EmbeddingWeight((weight,), indices, flat)
    assert isinstance(module, _ConvNd)
    padding = tuple(module._reversed_padding_repeated_twice)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    stride, dilation = tuple(module.stride), tuple(module.dilation)
    return ConvolutionWeight(
        (weight,), inputs, gradients, stride, dilation, module.groups, padding, mode
    )
