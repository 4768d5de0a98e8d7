"""Per-sample gradients of single layers, without the matrix of them.

Known layers have closed forms; any other module is run again.
"""

from holdfast.sources.layers._known import (
    gradients_of,
    is_known,
    keeps_samples_apart,
)
from holdfast.sources.layers._layer_gradients import LayerGradients, weighted
from holdfast.sources.layers._noise import RecordedNoise
from holdfast.sources.layers._recomputed import Dimensions, Recomputed
from holdfast.sources.layers._shared import Shared

__all__ = [
    "Dimensions",
    "LayerGradients",
    "Recomputed",
    "RecordedNoise",
    "Shared",
    "gradients_of",
    "is_known",
    "keeps_samples_apart",
    "weighted",
]
