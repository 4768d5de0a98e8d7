"""Robust steps as an optimizer and as a backward pass."""

from holdfast.optim._robust_backward import robust_backward
from holdfast.optim._robust_optimizer import RobustOptimizer

__all__ = ["RobustOptimizer", "robust_backward"]
