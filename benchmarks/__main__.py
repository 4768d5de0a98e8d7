"""Measure all tables, or those named, and write them to docs/benchmarks as JSON and Markdown.

Usage: python -m benchmarks [TABLE ...]
"""

import argparse
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import bgmd, core, exchange, federated, guard, training
from benchmarks.core import Table
from benchmarks.machine import describe

FOLDER = Path(__file__).parent.parent / "docs" / "benchmarks"

PAGES: dict[str, ModuleType] = {
    "core": core,
    "bgmd": bgmd,
    "training": training,
    "guard": guard,
    "exchange": exchange,
    "federated": federated,
}
"""The module of each page has TITLE, TABLES, BARS and `bars`, and optionally `draw` for figures."""


def main() -> None:
    names = [name for page in PAGES.values() for name in page.TABLES]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure speed and memory as ratios in one run."
    )
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(names)}; all if left out"
    )
    chosen = parser.parse_args().tables or names
    unknown = [name for name in chosen if name not in names]
    if unknown:
        parser.error(f"TABLE must be one of {', '.join(names)}, got {', '.join(unknown)}.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for title, module in PAGES.items():
        measure_page(title, module, [name for name in module.TABLES if name in chosen])


def measure_page(title: str, module: ModuleType, chosen: list[str]) -> None:
    """Measure these tables of a page, and write the page anew."""
    record = FOLDER / f"{title}.json"
    results: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    if not chosen:
        return
    results["machine"] = describe()
    for name in chosen:
        print(f"{name} ...", flush=True)
        rows = module.TABLES[name]()
        results[name] = shown(rows) if isinstance(rows, Iterator) else rows
        record.write_text(json.dumps(results, indent=1) + "\n")
        print(markdown(results[name]), flush=True)
    (FOLDER / f"{title}.md").write_text(page(module, results))
    if hasattr(module, "draw"):
        module.draw(results, FOLDER)


def shown(rows: Iterator[dict[str, Any]]) -> Table:
    """The rows of a long table, each shown when it is measured: a stop loses the table only."""
    table = []
    for row in rows:
        print(json.dumps(row), flush=True)
        table.append(row)
    return table


def page(module: ModuleType, results: dict[str, Any]) -> str:
    """All measured tables, each under the docstring of its function."""
    machine = ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in results["machine"].items()
    )
    parts = [
        f"# {module.TITLE}",
        wrapped(f"Measured by `make bench` on: {machine}."),
        wrapped(UNITS),
    ]
    parts += ["## Bars", wrapped(module.BARS), markdown(module.bars(results))]
    for name, measure in module.TABLES.items():
        if name in results:
            title = name.replace("_", " ").capitalize()
            parts += [
                f"## {title}",
                wrapped(inspect.getdoc(measure) or ""),
                markdown(results[name]),
            ]
    return "\n\n".join(parts) + "\n"


UNITS = (
    "A *mean* is the time of `rows.mean(0)` in the same run, a lower bound for any rule. "
    "Candidates take turns, and each time is the minimum over several rounds. `gap` is "
    "the certified relative distance from the optimum. `excess objective` is the relative excess "
    "of a peer's sum of distances over ours (negative: smaller)."
)


def wrapped(text: str) -> str:
    """The paragraphs of the text in lines of at most 100 columns."""
    return "\n\n".join(
        textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
        for part in text.split("\n\n")
    )


def markdown(table: Table) -> str:
    """A Markdown table with the columns in order of appearance."""
    columns = list(dict.fromkeys(key for row in table for key in row))
    lines = [
        "| " + " | ".join(column.replace("_", " ") for column in columns) + " |",
        "|" + "---|" * len(columns),
    ]
    lines += [
        "| " + " | ".join(cell(row.get(column)) for column in columns) + " |" for row in table
    ]
    return "\n".join(lines)


def cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return (
            f"{value:.1e}"
            if value != 0 and abs(value) < 5e-3
            else f"{value:,.2f}"
            if abs(value) < 100
            else f"{value:,.0f}"
        )
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    main()
