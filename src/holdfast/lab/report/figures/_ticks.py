"""Where axes are named, and how."""

from collections.abc import Sequence

from matplotlib.axis import XAxis, YAxis
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from holdfast.lab.report.figures._views import Scale

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def set_scale(axis: XAxis | YAxis, scale: Scale, ticks: Sequence[float] = ()) -> None:
    """Give an axis its scale and a handful of names, at `ticks` if there are any."""
    if scale == "log":
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        axis.set_major_locator(LogLocator(base=10, numticks=6))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    if ticks:
        axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def plain(value: float) -> str:
    """A number on an axis, without the markup that labels of others could smuggle in, too.

    Example:
        >>> plain(0.05), plain(2500.0), plain(1e6), plain(2e-7)
        ('0.05', '2,500', '10⁶', '2·10⁻⁷')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.10g}"
    digits, exponent = f"{value:.2e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if digits == "1" else f"{digits}·{power}"
