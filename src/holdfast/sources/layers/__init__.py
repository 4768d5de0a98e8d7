"""Per-sample gradients of single layers, without a matrix of them: short forms for known layers, and a way for all others."""

from holdfast.sources.layers._known import gradients_of, is_known
from holdfast.sources.layers._layer_gradients import LayerGradients
from holdfast.sources.layers._recomputed import Recomputed

__all__ = ["LayerGradients", "Recomputed", "gradients_of", "is_known"]
