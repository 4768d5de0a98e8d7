"""The long run: `make fuzz`, or with other numbers

python -m tests.fuzz --seed 1 --share 0.1 --record docs/benchmarks/fuzz.json names options
"""

import argparse
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.harness import execute
from tests.fuzz.targets import TARGETS


def main() -> None:
    """Execute the targets, print what was found, and end with 1 if there is anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", help="by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the executions of a long run")
    parser.add_argument("--first", type=int, default=0, help="number of the first execution")
    parser.add_argument("--record", type=Path, help="file for the figures")
    given = parser.parse_args()
    os.environ["HOLDFAST_DATA"] = ""
    figures: dict[str, Any] = {}
    for target, most in TARGETS.items():
        name = target.__name__
        if given.targets and name not in given.targets:
            continue
        with TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
            count = max(1, round(most * given.share))
            numbers = range(given.first, given.first + count)
            outcome = execute(target, Path(folder), numbers, given.seed)
        figures[name] = {
            "executions": outcome.executions,
            "refused": outcome.refused,
            "seconds": round(outcome.seconds),
            "findings": len(outcome.findings),
        }
        sys.stdout.write(f"{name} {figures[name]}\n")
        for number, trace in outcome.findings.values():
            sys.stdout.write(f"{name}, seed {given.seed}, number {number}:\n{trace}\n")
    if given.record is not None:
        given.record.write_text(
            json.dumps({"seed": given.seed, "targets": figures}, indent=1) + "\n"
        )
    raise SystemExit(any(one["findings"] for one in figures.values()))


if __name__ == "__main__":
    main()
