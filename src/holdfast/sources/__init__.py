"""Sources: from a batch to rows of gradients."""

from holdfast.sources._accumulated import Accumulated
from holdfast.sources._batch_loss import LossFunction, Reduction
from holdfast.sources._layer_grams import LayerGrams
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._micro_batches import MicroBatches
from holdfast.sources._per_sample import PerSample
from holdfast.sources._source import DenseSource, Source

__all__ = [
    "Accumulated",
    "DenseSource",
    "LayerGrams",
    "LayerRows",
    "LossFunction",
    "MicroBatches",
    "PerSample",
    "Reduction",
    "Source",
]
