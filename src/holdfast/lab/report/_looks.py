"""One look for each label, the same in every figure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from holdfast.lab.report._colors import N_SERIES

Dashes = Literal["-"] | tuple[float, tuple[float, ...]]
"""Of a line, as matplotlib has them."""

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
class Look:
    """How what has a label is drawn.

    Args:
        key: by which the page finds it.
        color: its name in the table of colours.
        marker: as matplotlib calls it.
        dashes: of lines.
    """

    key: str
    color: str
    marker: str = "o"
    dashes: Dashes = "-"


FIXED: Mapping[str, Look] = {
    "good": Look(key="good", color="muted"),
    "bad": Look(key="bad", color="bad", marker="X"),
    "weight": Look(key="weight", color="weight"),
    "bad row": Look(key="bad-row", color="bad-row"),
    "rejected row": Look(key="rejected-row", color="rejected-row"),
    "data": Look(key="data", color="series-4"),
    "attack": Look(key="attack", color="bad"),
    "gradient": Look(key="gradient", color="series-0"),
    "aggregation": Look(key="aggregation", color="series-1"),
    "optimizer": Look(key="optimizer", color="series-2"),
}
"""What is no method."""


def looks_of(figures: Iterable[Sequence[str]]) -> dict[str, Look]:
    """A look for each label of the figures.

    No two labels of one figure look alike. Where that leaves a choice, the look with the fewest labels so far is taken, so that few labels
    share a look at all.
    """
    figures = [tuple(dict.fromkeys(labels)) for labels in figures]
    slots: dict[str, int] = {}
    for label in dict.fromkeys(
        label for labels in figures for label in labels if label not in FIXED
    ):
        near = {
            slots[other]
            for labels in figures
            if label in labels
            for other in labels
            if other in slots
        }
        used = list(slots.values())
        free = [slot for slot in range(max(N_SERIES, len(near) + 1)) if slot not in near]
        slots[label] = min(free, key=lambda slot: (used.count(slot), slot))
    return {**FIXED, **{label: _look(slot) for label, slot in slots.items()}}


def _look(slot: int) -> Look:
    """Lines of one colour differ in dashes and marker, whose tables have other lengths than that of the colours."""
    return Look(
        key=str(slot),
        color=f"series-{slot % N_SERIES}",
        marker=MARKERS[slot % len(MARKERS)],
        dashes=DASHES[slot % len(DASHES)],
    )
