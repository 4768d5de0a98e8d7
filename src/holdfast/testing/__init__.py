"""Contracts for your own parts: each check raises AssertionError that names a broken promise."""

from holdfast.testing._attacks import check_attack

__all__ = ["check_attack"]
