"""`holdfast train` under torchrun: one command, one record, one voice."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.lab.records import read_record
from tests.slow.launch import ROOT

ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
TRAIN = (
    *("train", "--model", "mlp", "--rows", "4", "--batch", "8", "--threads", "1"),
    *("--attack", "scaled-flip", "--corrupt", "0.25", "--fixed", "--evaluate-every", "20"),
)
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "-m")


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    # `timeout` ends torchrun, which ends the ranks, even if the tests themselves were killed.
    command = ["timeout", "-k", "40", "100", sys.executable, *words]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def output(folder: Path, *words: str) -> tuple[int, str]:
    process = start(folder, *words)
    text, _ = process.communicate()
    return process.returncode, text


def wait_for_step(folder: Path, step: int) -> None:
    deadline, metrics = time.monotonic() + 60, folder / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_bytes().splitlines()) < step:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_launcher_changes_the_record_in_nothing_but_times(tmp_path: Path) -> None:
    steps = ("--steps", "40")
    code, one = output(tmp_path, "-m", "holdfast", *TRAIN, *steps, "--folder", "one")
    assert code == 0, one
    code, many = output(tmp_path, *LAUNCH, "holdfast", *TRAIN, *steps, "--folder", "many")
    assert code == 0, many
    records = [read_record(tmp_path / name) for name in ("one", "many")]
    # Up to rounding: what a product of one slice rounds to depends on the processor.
    for one_entry, other in zip(*(record.without_times() for record in records), strict=True):
        assert one_entry.keys() == other.keys()
        for key, value in one_entry.items():
            is_number = isinstance(value, float)
            assert other[key] == (pytest.approx(value, rel=1e-3, abs=2e-3) if is_number else value)
    assert records[1].entries[-1]["suspects"] == records[1].entries[9]["bad"]
    assert len(records[1].run["ranks"]) == 4
    assert many.count("finished after 40 steps") == 1
    assert many.count("step 20/40") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_ranks_after_the_same_step_and_resume_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    steps, folder = ("--steps", "400"), tmp_path / "many"
    process = start(tmp_path, *LAUNCH, "holdfast", *TRAIN, *steps, "--folder", "many")
    wait_for_step(folder, 5)
    # To torchrun, which hands it on; `timeout` would send its own.
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), number)
    text, _ = process.communicate()
    assert process.returncode != 0
    assert text.count("Stopping after this step.") == 1
    stopped = read_record(folder)
    assert stopped.end is None
    assert f"stopped after step {stopped.n_steps} of 400" in text
    assert "to resume: torchrun --nproc-per-node 4 -m holdfast resume many" in text

    code, text = output(tmp_path, *LAUNCH, "holdfast", "resume", "many")
    assert code == 0, text
    assert f"Resuming after step {stopped.n_steps}." in text
    output(tmp_path, *LAUNCH, "holdfast", *TRAIN, *steps, "--folder", "one")
    assert read_record(folder).without_times() == read_record(tmp_path / "one").without_times()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*TRAIN, "--rows", "6"), "`--rows` must be 4 under torchrun, one row for each of 4 ranks"),
        ((*TRAIN, "--device", "cuda"), "`--device` must be one that this machine has, got cuda"),
        (("attack",), "`holdfast attack` must be started without torchrun"),
        (("resume", "nowhere"), "`folder` must hold a run (run.json), got nowhere"),
    ],
)
def test_wrong_use_is_refused_by_all_ranks_in_one_sentence(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    code, text = output(tmp_path, *LAUNCH, "holdfast", *words)
    assert code == 1  # torchrun's
    assert text.count(f"Error: {sentence}") == 1, text
    assert text.count("Traceback") == 1  # torchrun's
    assert not (tmp_path / "runs").exists()


def test_a_killed_rank_is_named_and_the_restarted_run_ends_the_same(tmp_path: Path) -> None:
    steps, folder = ("--steps", "300", "--checkpoint-seconds", "0"), tmp_path / "many"
    launch = (*LAUNCH[:-1], "--max-restarts", "1", "-m")
    process = start(tmp_path, *launch, "holdfast", *TRAIN, *steps, "--folder", "many")
    wait_for_step(folder, 5)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = Path(f"/proc/{child}/task/{child}/children").read_text().split()
    os.kill(int(ranks[1]), signal.SIGKILL)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    assert re.search(r"Error: step \d+: rank 1 \(.*\) has ended", text), text
    output(tmp_path, *LAUNCH, "holdfast", *TRAIN, *steps[:2], "--folder", "one")
    assert read_record(folder).without_times() == read_record(tmp_path / "one").without_times()
