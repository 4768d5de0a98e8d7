"""The colours of page and figures, in the one place where they are written down."""

from collections.abc import Mapping

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
"""Each as on light and as on dark ground; the three that stand in images must do for both. Those of the series differ for the colour-blind, too."""

N_SERIES = sum(name.startswith("series-") for name in COLORS)

PRINT: Mapping[str, str] = {name: light for name, (light, _) in COLORS.items()}
"""For files, which lie on white paper."""

PAGE: Mapping[str, str] = {name: f"#f0e1{i:02x}" for i, name in enumerate(COLORS)}
"""Stand-ins, which no palette holds, for the variables of the page's style sheet; see :func:`with_variables`."""


def with_variables(style: str) -> str:
    """A style with each stand-in replaced by the variable that it stands for.

    Example:
        >>> with_variables(f"stroke: {PAGE['ink']}")
        'stroke: var(--ink)'
    """
    for name, color in PAGE.items():
        style = style.replace(color, f"var(--{name})")
    return style
