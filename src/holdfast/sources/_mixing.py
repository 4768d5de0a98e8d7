"""Layers that mix the samples of a batch, so that no sample has a gradient of its own."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from holdfast.checks import failure


def check_samples_apart(model: nn.Module) -> None:
    """No layer of the model normalises over the samples of a batch, or averages statistics over them."""
    for name, module in model.named_modules():
        mixes = isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
        if mixes or (
            isinstance(module, _InstanceNorm) and module.training and module.track_running_stats
        ):
            raise failure(
                "model",
                "keep samples apart (put the layer into evaluation mode, use GroupNorm, or take MicroBatches)",
                f"{type(module).__name__} {name!r}, which mixes them in training mode",
            )
