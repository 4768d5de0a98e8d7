"""One table from the records of many runs: a line per rule, a column per threat, test accuracy in percent.

The runs must differ in rule, threat and seed alone; of several seeds there is the mean and the standard deviation.

    python examples/table_of_runs.py runs/*
    python examples/table_of_runs.py runs/* --summary docs/results/fashion_mnist.jsonl
    python examples/table_of_runs.py docs/results/fashion_mnist.jsonl --page docs/results/fashion_mnist.md

The summary has one line per run, and may be given in place of the runs. On the page the lines of the table are written anew.
"""

import argparse
import json
import re
import shlex
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from holdfast.lab.config import config_from_json, format_rule, format_threat
from holdfast.records import config_hash, is_record, read_record

ORDER = ["mean", "coordinate-median", "geometric-median", "bgmd", "bgmd-paper"]
VARIED = ("seed", "aggregator", "selector", "memory", "threat")
OF_THE_MACHINE = ("--data-dir", "--folder", "--threads", "--device")


def summarise(folder: Path) -> dict[str, Any]:
    """What matters of a run, in one mapping."""
    record = read_record(folder)
    config = config_from_json(record.config)
    return {
        "rule": format_rule(config.aggregator, config.selector, config.memory),
        "threat": format_threat(config.threat),
        "n_bad": config.threat.cast.count(config.n_rows),
        "seed": config.seed,
        "end": record.end and record.end["end"],
        "reason": record.end and record.end.get("reason"),
        "n_steps": record.n_steps,
        "accuracy": record.accuracy and round(record.accuracy, 4),
        "curve": {entry["step"]: round(entry["accuracy"], 4) for entry in record.entries if "accuracy" in entry},
        "bad_weight": record.bad_weight and round(record.bad_weight, 4),
        "setting": config_hash({name: value for name, value in record.config.items() if name not in VARIED}),
        "hash": record.hash,
        "command": command(record.run["command"]),
    }


def command(words: list[str]) -> str:
    """What was typed, without what is of one machine alone."""
    kept = list(words)
    for option in OF_THE_MACHINE:
        while option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    return shlex.join(kept)


def cell(runs: list[dict[str, Any]]) -> str:
    """The accuracy; a run that diverged has none."""
    if not runs:
        return ""
    if any(run["end"] == "diverged" for run in runs):
        return "diverged"
    found = [100 * run["accuracy"] for run in runs]
    return f"{mean(found):.1f}" + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")


def table(runs: list[dict[str, Any]]) -> list[str]:
    """The lines of a Markdown table."""
    threats = sorted({(run["threat"] != "none", run["threat"], run["n_bad"]) for run in runs})
    heads = [name if name == "none" else f"{name}, {n_bad} bad rows" for _, name, n_bad in threats]
    lines = [["rule", *heads], ["---"] * (len(heads) + 1)]
    for rule in dict.fromkeys(run["rule"] for run in runs):
        own = [[run for run in runs if (run["rule"], run["threat"], run["n_bad"]) == (rule, *key[1:])] for key in threats]
        lines.append([rule, *map(cell, own)])
    return [f"| {' | '.join(line)} |" for line in lines]


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """The runs that have ended, from their folders or from a summary."""
    if paths[0].is_file():
        runs = [json.loads(line) for line in paths[0].read_text().splitlines()]
    else:
        runs = [summarise(folder) for folder in paths if is_record(folder)]
    runs = [run for run in runs if run["end"] is not None]
    if len({run["setting"] for run in runs}) != 1:
        raise SystemExit("The runs must differ in rule, threat and seed alone, got others (or none that has ended).")
    place = {rule: i for i, rule in enumerate(ORDER)}
    return sorted(
        runs, key=lambda run: (place.get(run["rule"], len(ORDER)), run["rule"], run["threat"], run["n_bad"], run["seed"])
    )


def main() -> None:
    """Read the records, print the table, keep the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs, or one summary")
    parser.add_argument("--summary", type=Path, help="file for one line per run")
    parser.add_argument("--page", type=Path, help="page whose table is written anew")
    given = parser.parse_args()
    runs = read(given.runs)
    lines = "\n".join(table(runs)) + "\n"
    print(lines, end="")
    if given.summary is not None:
        given.summary.write_text("".join(json.dumps(run) + "\n" for run in runs))
    if given.page is not None:
        given.page.write_text(
            re.sub(r"^\| rule \|(.*\n\|)*.*\n", lambda _: lines, given.page.read_text(), count=1, flags=re.MULTILINE)
        )


if __name__ == "__main__":
    main()
