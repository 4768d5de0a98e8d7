"""Who was rejected, over time: which rows of a training are suspect."""

from holdfast.monitor._monitor import Monitor, Suspect

__all__ = ["Monitor", "Suspect"]
