"""One table from the records of many runs: a line per rule, a column per threat, test accuracy in percent.

    python examples/table_of_runs.py runs/*
    python examples/table_of_runs.py runs/* --summary docs/results/fashion_mnist.jsonl --page docs/results/fashion_mnist.md

The summary has one line per run, and may be given in place of the runs; of the page, the part after the first table's head is written anew.
"""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from holdfast.lab.config import config_from_json, format_rule, format_threat
from holdfast.records import is_record, read_record


def summarise(folder: Path) -> dict[str, Any]:
    """What matters of a run, in one mapping."""
    record = read_record(folder)
    config = config_from_json(record.config)
    weights = [entry["bad_weight"] for entry in record.entries if "bad_weight" in entry]
    return {
        "rule": format_rule(config.aggregator, config.selector, config.memory),
        "threat": format_threat(config.threat),
        "share": config.threat.cast.bad_fraction,
        "seed": config.seed,
        "end": record.end and record.end["end"],
        "reason": record.end and record.end.get("reason"),
        "n_steps": record.n_steps,
        "accuracy": None if record.accuracy is None else round(record.accuracy, 4),
        "curve": {entry["step"]: round(entry["accuracy"], 4) for entry in record.entries if "accuracy" in entry},
        "bad_weight": round(sum(weights) / len(weights), 4) if weights else None,
        "hash": record.hash,
        "command": shlex.join(record.run["command"]),
    }


def cell(runs: list[dict[str, Any]]) -> str:
    """The accuracy, of several seeds the mean; a run that diverged has none."""
    if not runs:
        return ""
    if any(run["end"] == "diverged" for run in runs):
        return "diverged"
    return f"{100 * sum(run['accuracy'] for run in runs) / len(runs):.1f}"


def table(runs: list[dict[str, Any]]) -> list[str]:
    """The lines of a Markdown table."""
    threats = sorted({(run["threat"] != "none", run["threat"], run["share"]) for run in runs})
    rules = list(dict.fromkeys(run["rule"] for run in runs))
    heads = [name if not share else f"{name} {share:.0%}" for _, name, share in threats]
    lines = [["rule", *heads], ["---"] * (len(heads) + 1)]
    for rule in rules:
        own = [[run for run in runs if (run["rule"], run["threat"], run["share"]) == (rule, *key[1:])] for key in threats]
        lines.append([rule, *map(cell, own)])
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    """Read the records, print the table, keep the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs, or one summary")
    parser.add_argument("--summary", type=Path, help="file for one line per run")
    parser.add_argument("--page", type=Path, help="page whose table is written anew")
    given = parser.parse_args()
    if given.runs[0].is_file():
        runs = [json.loads(line) for line in given.runs[0].read_text().splitlines()]
    else:
        runs = [summarise(folder) for folder in given.runs if is_record(folder)]
    runs = [run for run in runs if run["end"] is not None]  # the others are still at it
    order = ["mean", "coordinate-median", "geometric-median", "bgmd", "bgmd-paper"]
    runs.sort(
        key=lambda run: (
            order.index(run["rule"]) if run["rule"] in order else len(order),
            run["threat"],
            run["share"],
            run["seed"],
        )
    )
    if given.summary is not None:
        given.summary.write_text("".join(json.dumps(run) + "\n" for run in runs))
    print("\n".join(table(runs)))
    if given.page is not None:
        before = given.page.read_text().split("\n| rule |")[0].rstrip()
        given.page.write_text("\n".join([before, "", *table(runs)]) + "\n")


if __name__ == "__main__":
    main()
