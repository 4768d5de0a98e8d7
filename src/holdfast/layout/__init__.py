"""Which columns of the rows belong to which parameter of a model."""

from holdfast.layout._layout import Layout

__all__ = ["Layout"]
