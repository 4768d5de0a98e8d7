"""Holdfast trains PyTorch models through corrupted gradients."""

__version__ = "0.1.0"
