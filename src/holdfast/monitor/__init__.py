"""Rows that are suspect over the course of a training."""

from holdfast.monitor._monitor import Monitor, Suspect

__all__ = ["Monitor", "Suspect"]
