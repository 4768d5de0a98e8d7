"""Half an hour of real runs under attacks, faults and kills, of which nothing may be lost.

Scenarios with different rules, attacks and schemes take turns. Each is trained by `holdfast train`
in processes that are killed at random moments (SIGKILL, SIGTERM or SIGINT, to the command or to
all of its processes) and resumed until the run ends. Then this process, which lives all the time,
trains the same configuration without a stop. The two records, except timings, and the two models
must be equal bit for bit, and no temporary file may be left. The memory of this process is measured
after every training.

python examples/soak.py --minutes 30 --record docs/benchmarks/soak.json
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from typing import final

import torch
from torch import Tensor

from holdfast.lab import run, trained_model
from holdfast.lab.config import config_from_json
from holdfast.lab.records import Record, is_record, read_record

ROWS = "--rows 8 --batch 8"
WORKERS = "--workers 8 --batch 8 --optimizer sgd(lr=0.05)"
SCENARIOS = (
    f"{ROWS} --rule radius-filter --attack scaled-flip --corrupt 0.25",
    f"{WORKERS} --send 0.05 --attack huddle --corrupt 0.25 --lie huge",
    f"{ROWS} --rule mixing(n_bad=2)|geometric-median --attack little-is-enough --corrupt 0.25",
    f"{ROWS} --rule bgmd --optimizer adam --attack noisy-rows --corrupt 0.25",
    f"{WORKERS} --scheme byz-ef21(send=0.05) --attack bounded-distance --corrupt 0.25",
    f"{ROWS} --rule coordinate-median --attack non-finite --corrupt 0.4",
    f"{ROWS} --rule covariance-filter(n_bad=2) --attack ieee-bit-flips --corrupt 0.25",
    f"{WORKERS} --send 0.05 --local-steps 2 --absent 0.25 --attack scaled-flip --corrupt 0.25",
    f"{ROWS} --rule bgmd-paper --optimizer sgd --attack wrong-labels --corrupt 0.4",
    f"{ROWS} --rule centered-clipping(radius=1.0) --attack mimic --corrupt 0.25 --fixed",
    f"{WORKERS} --scheme rosdhb(send=0.05) --attack late(start=20)|inner-product --corrupt 0.25",
    f"{ROWS} --rule krum(n_bad=2) --attack backdoor --corrupt 0.25 --schedule cosine",
    f"{ROWS} --rule mean --attack scaled-flip --corrupt 0.25",
)
"""Options of `holdfast train`. The last one diverges, which is an end like others."""

MORE = "--model small-mlp --steps 80 --evaluate-every 40 --threads 1 --checkpoint-seconds 0.2"
MOST_KILLS = 4
"""Kills of one run; then it is left to end."""

EARLY = 0.25
"""Share of the kills that come at any moment from the start on, not after the first new steps."""

PATIENCE = 600.0
"""Seconds after which a command that does not end has failed."""

FILES = {"run.json", "metrics.jsonl", "checkpoint.pt"}
"""What a run leaves in its folder."""

ENDED = {0: "finished", 3: "diverged"}
"""Exit codes of a run that has ended."""


@final
@dataclass
class Tally:
    """What happened so far."""

    seconds: float = 0.0
    runs: int = 0
    ends: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    kills: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    kills_while_training: int = 0
    steps_in_this_process: int = 0
    megabytes: list[float] = field(default_factory=list)
    peak_megabytes: float = 0.0


def soak(seconds: float, folder: Path, seed: int) -> Iterator[Tally]:
    """Make runs until the time is over, and yield the tally after each; raises at a difference."""
    started, chance, tally = time.monotonic(), random.Random(seed), Tally()
    for number in count():
        if time.monotonic() - started >= seconds:
            return
        scenario = SCENARIOS[number % len(SCENARIOS)].split()
        options = [*scenario, *MORE.split(), "--seed", str(seed + number // len(SCENARIOS))]
        killed = folder / f"killed-{number}"
        train_with_kills(options, killed, chance, tally)
        whole = folder / f"whole-{number}"
        record = run(config_from_json(read_record(killed).config), whole)
        compare(killed, record)
        tally.runs += 1
        tally.steps_in_this_process += record.n_steps
        tally.megabytes.append(resident_megabytes())
        tally.peak_megabytes = getrusage(RUSAGE_SELF).ru_maxrss / 1024
        tally.seconds = time.monotonic() - started
        yield tally


def train_with_kills(options: list[str], folder: Path, chance: random.Random, tally: Tally) -> None:
    """Start the command, kill it and start it again, until the run has ended."""
    n_kills = chance.randint(1, MOST_KILLS)
    train, resume = ["train", *options, "--folder", str(folder)], ["resume", str(folder)]
    for attempt in count():
        command = resume if is_record(folder) and chance.random() < 0.5 else train
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *command, "--quiet"],
            start_new_session=True,  # a process group of its own, so that all of it can be killed
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        kill = kill_at_random(process, folder, chance, tally) if attempt < n_kills else None
        # All processes of the command hold its standard error, so this waits for the last of them.
        _, error = process.communicate(timeout=PATIENCE)
        if process.returncode in ENDED:
            tally.ends[ENDED[process.returncode]] += 1
            return
        # A command that was told to stop ends by itself with 130 or 143, a killed one by a signal.
        if kill is None or process.returncode not in (130, 143, -kill):
            raise RuntimeError(f"{command} ended with {process.returncode}: {error}")


def kill_at_random(
    process: subprocess.Popen[str], folder: Path, chance: random.Random, tally: Tally
) -> signal.Signals | None:
    """Kill the command, or all of its processes, at some moment; None if it ended before."""
    kind = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    # Ctrl-C reaches all processes of a terminal; the others are sent to one, or to all by a system
    # that shuts down.
    to_all = kind is signal.SIGINT or chance.random() < 0.5
    metrics = folder / "metrics.jsonl"
    before = metrics.stat().st_size if metrics.exists() else 0
    if chance.random() >= EARLY:
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > before):
            time.sleep(0.01)
    else:
        time.sleep(chance.uniform(0.0, 1.0))
        kind = signal.SIGKILL  # Python starts with handlers of its own for the others
    with suppress(subprocess.TimeoutExpired):
        process.wait(chance.uniform(0.0, 2.0))
    if process.poll() is not None:
        return None
    is_training = metrics.exists() and metrics.stat().st_size > before
    with suppress(ProcessLookupError):
        (os.killpg if to_all else os.kill)(process.pid, kind)
    tally.kills[f"{kind.name} to {'all processes' if to_all else 'the command'}"] += 1
    tally.kills_while_training += is_training
    return kind


def compare(killed: Path, whole: Record) -> None:
    """Raise unless the run in the folder equals the whole one, in its record and its model."""
    found = read_record(killed)
    if (found.without_times(), found.end) != (whole.without_times(), whole.end):
        raise RuntimeError(f"the records of {killed} and {whole.folder} differ")
    if whole.end is not None and whole.end["end"] == "finished" and not same_models(found, whole):
        raise RuntimeError(f"the models of {killed} and {whole.folder} differ")
    left = {path.name for path in killed.iterdir()} - FILES
    if left:
        raise RuntimeError(f"{killed} also holds {sorted(left)}")


def same_models(*records: Record) -> bool:
    """Whether the trained models are equal bit for bit."""
    first, second = (states(record.folder) for record in records)
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def states(folder: Path) -> dict[str, Tensor]:
    """The tensors of a trained model by name."""
    return trained_model(folder).state_dict()


def resident_megabytes() -> float:
    """Memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def main() -> None:
    """Soak, print the tally after each run, and keep the last one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="file for the figures")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="holdfast-soak-") as folder:
        for tally in soak(60 * given.minutes, Path(folder), given.seed):
            print(
                f"{tally.seconds:.0f} s, run {tally.runs}: {sum(tally.kills.values())} kills, "
                f"{tally.megabytes[-1]:.0f} MB"
            )
            if given.record is not None:
                given.record.write_text(json.dumps(vars(tally), indent=1) + "\n")


if __name__ == "__main__":
    main()
