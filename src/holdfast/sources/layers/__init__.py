"""Per-sample gradients of single layers, without the matrix of them.

Known layers have short forms; any other module is run again.
"""

from holdfast.sources.layers._known import gradients_of, is_known
from holdfast.sources.layers._layer_gradients import LayerGradients
from holdfast.sources.layers._recomputed import Recomputed

__all__ = ["LayerGradients", "Recomputed", "gradients_of", "is_known"]
