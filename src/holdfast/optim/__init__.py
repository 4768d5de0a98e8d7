"""Robust steps in the place of an optimizer's, and of a backward pass."""

from holdfast.optim._robust_backward import robust_backward
from holdfast.optim._robust_optimizer import RobustOptimizer

__all__ = ["RobustOptimizer", "robust_backward"]
