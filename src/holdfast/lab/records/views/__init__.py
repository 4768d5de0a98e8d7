"""How a study shows its runs and measurements; each view refers to them by the hash of their configuration."""

from holdfast.lab.records.views._lines import (
    CurvePanel,
    Curves,
    Line,
    Measured,
    MeasuredLine,
    MeasuredPanel,
    MeasuredPoint,
    Metric,
    Point,
    PointLine,
    PointPanel,
    Points,
    Scale,
)
from holdfast.lab.records.views._pictures import (
    Pictures,
    RowPanel,
    RowWeights,
    Scatter,
    ScatterPanel,
    TimeSplit,
)
from holdfast.lab.records.views._tables import (
    AccuracyTable,
    MeasuredValue,
    PaperCell,
    TableRow,
    ValueRow,
    ValueTable,
)
from holdfast.lab.records.views._view import View

__all__ = [
    "AccuracyTable",
    "CurvePanel",
    "Curves",
    "Line",
    "Measured",
    "MeasuredLine",
    "MeasuredPanel",
    "MeasuredPoint",
    "MeasuredValue",
    "Metric",
    "PaperCell",
    "Pictures",
    "Point",
    "PointLine",
    "PointPanel",
    "Points",
    "RowPanel",
    "RowWeights",
    "Scale",
    "Scatter",
    "ScatterPanel",
    "TableRow",
    "TimeSplit",
    "ValueRow",
    "ValueTable",
    "View",
]
