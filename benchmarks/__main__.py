"""Measure all tables, or those named, and write them to docs/benchmarks as JSON and Markdown.

Usage: python -m benchmarks [TABLE ...]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.tables import TABLES, Table

FOLDER = Path(__file__).parent.parent / "docs" / "benchmarks"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed and memory as ratios in one run.")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(TABLES)}; all if left out")
    chosen = parser.parse_args().tables or list(TABLES)
    unknown = [name for name in chosen if name not in TABLES]
    if unknown:
        parser.error(f"TABLE must be one of {', '.join(TABLES)}, got {', '.join(unknown)}.")
    record = FOLDER / "core.json"
    results: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    results["machine"] = describe()
    for name in chosen:
        print(f"{name} ...", flush=True)
        results[name] = TABLES[name]()
        print(markdown(results[name]), flush=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(results, indent=1) + "\n")
    (FOLDER / "core.md").write_text(page(results))


def page(results: dict[str, Any]) -> str:
    """All tables that were measured, each with the sentence that says what it shows."""
    machine = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in results["machine"].items())
    parts = ["# Speed and memory of the core", f"Measured by `make bench` on: {machine}.", UNITS]
    parts += ["## Bars", BARS, markdown(bars(results))]
    for name, measure in TABLES.items():
        if name in results:
            title = name.replace("_", " ").capitalize()
            parts += [f"## {title}", (measure.__doc__ or "").strip(), markdown(results[name])]
    return "\n\n".join(parts) + "\n"


def bars(results: dict[str, Any]) -> Table:
    """The goals for this part of Holdfast beside the figures."""
    table: Table = []

    def add(what: str, bar: str, measured: float, met: bool) -> None:
        table.append({"what": what, "bar": bar, "measured": measured, "met": met})

    for row in results.get("geometric_medians", []):
        shape = f"n = {row['n']}, d = {row['d']:,}, {row['rows']}"
        if row["rows"] == "clean":
            add(f"geometric median, {shape}, in means", "at most 5", row["holdfast_means"], row["holdfast_means"] <= 5)
        faster = row["geom-median_times_ours"]
        add(f"geom-median's time over ours, {shape}", "at least 80", faster, faster >= 80)
    for row in results.get("coordinate_rules", []):
        if "compiled_means" in row and not row["rule"].startswith("mean-around"):
            add(f"{row['rule']}, n = 32, plain torch, in means", "at most 40", row["plain_means"], row["plain_means"] <= 40)
            add(f"{row['rule']}, n = 32, compiled, in means", "at most 20", row["compiled_means"], row["compiled_means"] <= 20)
    if "against_byzfl" in results:
        slowest = min(row["byzfl_times_ours"] for row in results["against_byzfl"])
        add("byzfl's time over ours, least over all rules and shapes", "above 1", slowest, slowest > 1)
    if "memory" in results:
        most = max(value for row in results["memory"] for key, value in row.items() if key != "rule")
        add("extra memory of a Gram rule, most over all rules and shapes, in rows", "at most 0.15", most, most <= 0.15)
    return table


BARS = (
    "What was to be reached, and what was. How long geom-median takes depends on the rows, because it stops when its float32 "
    "objective no longer moves: on these clean rows after few steps. Where it takes fewer than 80 means, being 80 times "
    "faster would ask for less than one pass over the rows."
)

UNITS = (
    "A *mean* is the time of `rows.mean(0)` in the same run, the least that any rule could cost. Candidates take turns, and the minimum "
    "of several rounds counts. `gap` is the certified relative distance from the optimum; `excess objective` is how much "
    "larger a peer's sum of distances is than ours (negative: smaller)."
)


def markdown(table: Table) -> str:
    """A Markdown table with the columns in order of appearance."""
    columns = list(dict.fromkeys(key for row in table for key in row))
    lines = ["| " + " | ".join(column.replace("_", " ") for column in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row.get(column)) for column in columns) + " |" for row in table]
    return "\n".join(lines)


def cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.1e}" if value != 0 and abs(value) < 5e-3 else f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    main()
