"""Rows that are suspect over the course of a training."""

from holdfast.monitor._monitor import Monitor, Suspect, have_little_weight

__all__ = ["Monitor", "Suspect", "have_little_weight"]
