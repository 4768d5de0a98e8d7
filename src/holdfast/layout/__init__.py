"""The columns of the rows that belong to each parameter of a model."""

from holdfast.layout._layout import Layout

__all__ = ["Layout"]
