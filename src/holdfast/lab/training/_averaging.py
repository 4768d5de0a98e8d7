"""The mean of a model over the steps of its training."""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def averaged(model: nn.Module, weight: float) -> AveragedModel:
    """A copy whose parameters follow those of `model`, with this weight of the past.

    Buffers, such as the statistics of BatchNorm, are those of the last step.
    """
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(weight))
