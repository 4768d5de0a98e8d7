"""Colors and styles: one style per label, the same in every figure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, final

import matplotlib.style

COLORS: Mapping[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#14171c"),
    "raised": ("#f5f6f8", "#1d2128"),
    "rule": ("#dfe2e7", "#343a44"),
    "grid": ("#e9ebee", "#2a2f38"),
    "ink": ("#1b1f24", "#e7e9ed"),
    "muted": ("#5a626d", "#a3abb8"),
    "accent": ("#1a5fb4", "#86b9f7"),
    "notice": ("#fdf4e0", "#2f2716"),
    "notice-rule": ("#d9a521", "#b98b1f"),
    "bad": ("#c62f2f", "#ff8f85"),
    "heat": ("#4a6fa5", "#7d9fd0"),
    "weight": ("#3f7fd0", "#3f7fd0"),
    "bad-row": ("#c62f2f", "#c62f2f"),
    "rejected-row": ("#b07d00", "#b07d00"),
    "series-0": ("#2a6bd0", "#7db8ff"),
    "series-1": ("#b14300", "#f08a3c"),
    "series-2": ("#16a07a", "#3fcf9d"),
    "series-3": ("#c263b4", "#e58fd0"),
    "series-4": ("#565c66", "#dfe2e8"),
    "series-5": ("#b08f00", "#f5e47c"),
    "series-6": ("#3d2587", "#8b78f0"),
    "series-7": ("#7d1128", "#d4566a"),
}
"""Light and dark. Colors of images are the same in both; colors of series can be told apart with
impaired color vision."""

N_SERIES = sum(name.startswith("series-") for name in COLORS)

PRINT: Mapping[str, str] = {name: light for name, (light, _) in COLORS.items()}
"""Colors of files, which have a white background."""

PAGE: Mapping[str, str] = {name: f"#f0e1{i:02x}" for i, name in enumerate(COLORS)}
"""Placeholders for the CSS variables of the page, replaced by :func:`with_variables`."""

Dashes = Literal["-"] | tuple[float, tuple[float, ...]]
"""A line style of matplotlib."""

MARKERS = ("o", "s", "^", "D", "v", "P", "p", "h", "<", ">", "*")
DASHES: tuple[Dashes, ...] = (
    "-",
    (0, (5, 1.6)),
    (0, (1.4, 1.4)),
    (0, (6, 1.5, 1.4, 1.5)),
    (0, (9, 2)),
)


@final
@dataclass(frozen=True, kw_only=True)
class SeriesStyle:
    """How a label is drawn; `key` identifies its artists on the page."""

    key: str
    color: str
    marker: str = "o"
    dashes: Dashes = "-"

    @property
    def gid(self) -> str:
        """The id of its artists in an SVG."""
        return f"series-{self.key}"


FIXED: Mapping[str, SeriesStyle] = {
    "good": SeriesStyle(key="good", color="muted"),
    "bad": SeriesStyle(key="bad", color="bad", marker="X"),
    "weight": SeriesStyle(key="weight", color="weight"),
    "bad row": SeriesStyle(key="bad-row", color="bad-row"),
    "rejected row": SeriesStyle(key="rejected-row", color="rejected-row"),
    "data": SeriesStyle(key="data", color="series-4"),
    "attack": SeriesStyle(key="attack", color="bad"),
    "gradient": SeriesStyle(key="gradient", color="series-0"),
    "aggregation": SeriesStyle(key="aggregation", color="series-1"),
    "optimizer": SeriesStyle(key="optimizer", color="series-2"),
}
"""Styles of labels that are not methods."""


def series_styles(figures: Iterable[Sequence[str]]) -> dict[str, SeriesStyle]:
    """Assign a style to each label of the figures.

    Labels of one figure have different styles. Among the styles that are possible for a label,
    the one with the fewest labels is taken.
    """
    figures = [tuple(dict.fromkeys(labels)) for labels in figures]
    slots: dict[str, int] = {}
    for label in dict.fromkeys(name for names in figures for name in names if name not in FIXED):
        together = [other for labels in figures if label in labels for other in labels]
        taken = {slots[other] for other in together if other in slots}
        used = list(slots.values())
        free = [slot for slot in range(max(N_SERIES, len(taken) + 1)) if slot not in taken]
        slots[label] = min(free, key=lambda slot: (used.count(slot), slot))
    return {**FIXED, **{label: _style(slot) for label, slot in slots.items()}}


def _style(slot: int) -> SeriesStyle:
    # The numbers of colors, markers and dashes have no common divisor: all combinations occur.
    return SeriesStyle(
        key=str(slot),
        color=f"series-{slot % N_SERIES}",
        marker=MARKERS[slot % len(MARKERS)],
        dashes=DASHES[slot % len(DASHES)],
    )


def with_variables(style: str) -> str:
    """Replace each placeholder of :data:`PAGE` by its CSS variable.

    Example:
        >>> with_variables(f"stroke: {PAGE['ink']}")
        'stroke: var(--ink)'
    """
    for name, color in PAGE.items():
        style = style.replace(color, f"var(--{name})")
    return style


def drawing_settings(ink: Mapping[str, str], *, size: float) -> AbstractContextManager[None]:
    """Settings of matplotlib for one drawing, independent of the user's own.

    Args:
        ink: color by name.
        size: font size in points.
    """
    own: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "holdfast",  # ids are the same each time
        "image.composite_image": False,
        "text.parse_math": False,  # dollars in labels are dollars
        "font.size": size,
        "axes.titlesize": size + 1,
        "axes.labelsize": size,
        "figure.titlesize": size + 2,
        "axes.edgecolor": ink["muted"],
        "axes.linewidth": 0.8,
        "axes.labelcolor": ink["ink"],
        "axes.titlecolor": ink["ink"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": ink["grid"],
        "grid.linewidth": 0.8,
        "text.color": ink["ink"],
        "legend.frameon": False,
        "legend.fontsize": size - 0.5,
        "legend.labelcolor": ink["ink"],
    }
    own |= dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), "none")
    for axis in ("xtick", "ytick"):
        own |= {f"{axis}.color": ink["muted"], f"{axis}.labelcolor": ink["muted"]}
        own |= {f"{axis}.labelsize": size - 0.5, f"{axis}.major.size": 3}
    return matplotlib.style.context(["default", own])
