"""Tests for rules, rows and attacks of your own: each check names the first broken promise."""

from holdfast.testing._attacks import check_attack
from holdfast.testing._rows import check_rows
from holdfast.testing._rules import check_rule

__all__ = ["check_attack", "check_rows", "check_rule"]
