"""The figures of docs/comparison.md are those that are measured and recorded here."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.hostile_rows import CASES, distance, ours

DOCS = Path(__file__).parent.parent / "docs"
LINES = [
    [cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split("|")]
    for line in (DOCS / "comparison.md").read_text().splitlines()
    if line.startswith("| ")
]


def core(table: str) -> list[dict[str, Any]]:
    """The rows of a table of docs/benchmarks/core.json for 32 rows of a LeNet."""
    found = json.loads((DOCS / "benchmarks" / "core.json").read_text())[table]
    return [row for row in found if row["n"] == 32 and row.get("rows", "clean") == "clean"]


@pytest.mark.parametrize("name", ours())
def test_our_rules_make_of_hostile_rows_what_is_shown(name: str) -> None:
    (shown,) = [line[2:] for line in LINES if line[:2] == [name, "holdfast"]]
    found = [float(distance(ours()[name], change)) for change in CASES.values()]
    assert max(found) < 1
    assert found == pytest.approx([float(cell) for cell in shown], rel=0.1, abs=1e-3)


def test_the_speeds_are_the_recorded_ones() -> None:
    (median,) = core("geometric_medians")
    shown = [line[1:] for line in LINES if line[0] == "geometric median"]
    libraries = ("byzfl", "byzpy", "geom-median")
    others = [f"{median[f'{library}_means']:.3g}" for library in libraries]
    assert shown == [[f"{median['holdfast_means']:.2f}", *others]]
    ratios = {row["rule"]: f"{row['byzfl_times_ours']:.3g}" for row in core("against_byzfl")}
    pairs = {line[0].replace("¦", "|"): line[1] for line in LINES if len(line) == 2}
    compared = {name: value for name, value in pairs.items() if name in ratios}
    assert len(compared) == 8
    assert compared == {name: ratios[name] for name in compared}
