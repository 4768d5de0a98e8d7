"""Inputs of the drawing functions: tables and figures that name runs and measurements by hash."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

Metric = Literal[
    "accuracy", "test_loss", "attack_success", "loss", "residual", "memory_norm", "bad_weight"
]
"""A quantity that a run's summary has over time."""

Scale = Literal["linear", "log"]

Runs = tuple[str, ...]
"""The runs of one cell, one per seed, by the hashes of their configurations."""

Lines = Mapping[str, Runs]
"""The runs of each line, by its label."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A table or a figure.

    Args:
        title: shown above it.
        note: what a reader must know to read it; may be empty.
    """

    title: str
    note: str = ""

    @property
    def kind(self) -> str:
        """The name of its class as it begins the names of files, such as `row-weights`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()


@final
@dataclass(frozen=True)
class PaperCell:
    """A percentage of the paper with its interval's half-width; `mean` None is an empty cell."""

    mean: float | None
    interval: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One line of a table of accuracies.

    Args:
        group: the heading above it; may be empty.
        label: its name.
        runs: the runs of each column.
        paper: the paper's cell for each column, None where the paper has no such column.
    """

    group: str
    label: str
    runs: tuple[Runs, ...]
    paper: tuple[PaperCell | None, ...]


@final
@dataclass(frozen=True, kw_only=True)
class AccuracyTable(View):
    """Final test accuracies beside the paper's: a line per threat, a column per method."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Curves(View):
    """A metric over time: by the title of each panel, its lines."""

    x: Literal["step", "seconds"]
    y: Metric
    panels: Mapping[str, Lines]


@final
@dataclass(frozen=True, kw_only=True)
class Points(View):
    """A metric at the end of runs over a setting: title of each panel to its lines, `x` to runs."""

    x_label: str
    x_scale: Scale = "linear"
    y: Metric
    panels: Mapping[str, Mapping[str, Mapping[float, Runs]]]


@final
@dataclass(frozen=True)
class MeasuredValue:
    """A value of a measurement's result; `errors.mean` is `mean` in the mapping `errors`."""

    measurement: str
    value: str


@final
@dataclass(frozen=True, kw_only=True)
class MeasuredPanel:
    """One pair of axes; `lines` maps the label of each line to its points, `x` to a value."""

    title: str = ""
    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    lines: Mapping[str, Mapping[float, MeasuredValue]]


@final
@dataclass(frozen=True, kw_only=True)
class Measured(View):
    """Measured values over a varied quantity; on two logarithmic axes, exponents are fitted."""

    panels: tuple[MeasuredPanel, ...]


@final
@dataclass(frozen=True, kw_only=True)
class ValueTable(View):
    """Measured values and texts: by the label of each line, its cells."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[MeasuredValue | str, ...]]


@final
@dataclass(frozen=True, kw_only=True)
class Scatter(View):
    """Points in the plane and estimates of their center: title of each panel to a measurement.

    Its result has `good` and `bad` (lists of points) and `estimates` (label to point).
    """

    panels: Mapping[str, str]


@final
@dataclass(frozen=True, kw_only=True)
class Pictures(View):
    """Images of a measurement.

    Its result has `columns` (names) and `rows`, each with a `label` and `pictures` (PNG in base64).
    """

    measurement: str


@final
@dataclass(frozen=True, kw_only=True)
class RowWeights(View):
    """Weights of rows over time, with the bad rows marked: title of each panel to its run."""

    panels: Mapping[str, str]


@final
@dataclass(frozen=True, kw_only=True)
class TimeSplit(View):
    """The parts of the time per step, one bar per line."""

    lines: Lines
