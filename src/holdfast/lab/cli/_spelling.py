"""Options by the names that messages of the library use."""

from holdfast.lab.cli._option import flag_of
from holdfast.lab.cli._options import OPTIONS

SPELLING = {
    **{one.field: flag_of(name) for name, one in reversed(OPTIONS.items()) if one.field},
    **{name: flag_of(name) for name, one in OPTIONS.items() if one.field},
    "adversaries": "--corrupt",
    "paths": "RUNS",
    "report lie": "--lie",
    "compact": "--compact",
    "target": "--attack",
    "shape": "shape of the samples",
    "n_shards": "--partition",
    "n_rows * row_size": "--rows times --batch",
}
"""Flags by the names that messages of the library use; a field of several options has the first."""
