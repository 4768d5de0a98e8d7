"""Runs that are kept as lines of JSON, and tables made from them: shared by the experiments here.

A run is a dictionary of its settings, followed by what was measured.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

Run = dict[str, Any]
Lines = list[list[str]]


def sweep(runs: list[Run], record: Path, measured: Callable[[Run], Run]) -> list[Run]:
    """All runs of the record, after appending those of `runs` that it lacks."""
    record.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    known = [{key: run.get(key) for key in runs[0]} for run in done] if runs else []
    for run in track([run for run in runs if run not in known], description="runs"):
        done.append(run | measured(run))
        with record.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return done


def sweep_parser(description: str | None, record: str) -> argparse.ArgumentParser:
    """A parser with the options that all sweeps have; `record` is the file by default."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--record", type=Path, default=Path(record), help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose tables are rewritten")
    parser.add_argument("--show", action="store_true", help="make no run, only the tables")
    return parser


def swept(given: argparse.Namespace, runs: list[Run], measured: Callable[[Run], Run]) -> list[Run]:
    """:func:`sweep` as the options of :func:`sweep_parser` say, on one thread; Ctrl-C stops it."""
    torch.set_num_threads(1)
    try:
        return sweep([] if given.show else runs, given.record, measured)
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None


def chosen(done: list[Run], **wanted: Any) -> list[Run]:
    """The runs with these settings, in the order of their seeds."""
    found = [run for run in done if all(run[key] == value for key, value in wanted.items())]
    return sorted(found, key=lambda run: int(run["seed"]))


def accuracy_cell(runs: list[Run]) -> str:
    """The mean accuracy over the seeds; None in a run means that it diverged."""
    n_diverged = sum(run["accuracy"] is None for run in runs)
    if n_diverged:
        return f"diverges ({n_diverged} of {len(runs)})"
    return f"{mean(run['accuracy'] for run in runs):.1f}" if runs else ""


def spread_cell(runs: list[Run]) -> str:
    """The same with the standard deviation, if there are several seeds and none diverged."""
    found = [run["accuracy"] for run in runs]
    has_spread = len(found) > 1 and None not in found
    return accuracy_cell(runs) + (f" ± {stdev(found):.1f}" if has_spread else "")


def markdown_table(lines: Lines) -> list[str]:
    """One table as lines of Markdown."""
    head, *body = lines
    return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body]]


def markdown(tables: dict[str, Lines]) -> list[str]:
    """The tables under their titles, as lines of Markdown."""
    text = ["## Tables"]
    for title, lines in tables.items():
        text += ["", f"### {title}", "", *markdown_table(lines)]
    return text


def show(tables: dict[str, Lines], page: Path | None) -> None:
    """Print the tables, and rewrite those of the page."""
    for title, lines in tables.items():
        print_table(lines, title)
    rewrite(page, "## Tables", markdown(tables))


def show_table(lines: Lines, page: Path | None) -> None:
    """Print the only table of a page, and rewrite it there."""
    print_table(lines)
    rewrite(page, f"| {lines[0][0]} |", markdown_table(lines))


def print_table(lines: Lines, title: str | None = None) -> None:
    """Print one table to the terminal."""
    head, *body = lines
    table = Table(*head, title=title)
    for line in body:
        table.add_row(*line)
    Console().print(table)


def rewrite(page: Path | None, first: str, lines: list[str]) -> None:
    """Replace the end of the page, from the line that begins with `first`, by these lines."""
    if page is not None:
        text = page.read_text().split(f"\n{first}")[0] if page.exists() else f"# {page.stem}"
        page.write_text("\n".join([text.rstrip(), "", *lines]) + "\n")
