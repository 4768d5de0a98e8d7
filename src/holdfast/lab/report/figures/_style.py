"""How matplotlib draws here, whatever the user's own settings are."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import matplotlib.style


def style(ink: Mapping[str, str], *, size: float) -> AbstractContextManager[None]:
    """Settings for the time of one drawing: these colours, letters of `size` points, and nothing that differs between two calls."""
    own: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "holdfast",
        "image.composite_image": False,
        "text.parse_math": False,  # dollars in labels are dollars
        "font.size": size,
        "axes.titlesize": size + 1,
        "axes.labelsize": size,
        "xtick.labelsize": size - 0.5,
        "ytick.labelsize": size - 0.5,
        "legend.fontsize": size - 0.5,
        "figure.titlesize": size + 2,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.facecolor": "none",
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
        "xtick.color": ink["muted"],
        "ytick.color": ink["muted"],
        "xtick.labelcolor": ink["muted"],
        "ytick.labelcolor": ink["muted"],
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "legend.frameon": False,
        "legend.labelcolor": ink["ink"],
    }
    return matplotlib.style.context(["default", own])
