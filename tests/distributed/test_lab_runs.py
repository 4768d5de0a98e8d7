"""Runs of the lab with a row per rank: the record of one process, stops and resumes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.distributed import Ranks
from holdfast.lab.config import Config
from holdfast.lab.optimizers import Sgd
from holdfast.lab.records import Record, read_record
from holdfast.lab.training import follow, resume, run
from holdfast.threats import Adversaries
from tests.distributed.workers import Workers
from tests.lab.cases import tiny

N = 4
FIXED = Adversaries(n_bad=1, redrawn=False)
CONFIGS: dict[str, Config] = {
    "clean": tiny("radius-filter", model="mlp", n_rows=N),
    "attack that knows the rule": tiny(
        "geometric-median", "huddle(direction='wrong-labels')", FIXED, model="mlp", n_rows=N
    ),
    "bgmd": tiny(
        "bgmd(units='gradient')", "scaled-flip", FIXED, model="mlp", n_rows=N, average=0.8
    ),
    "not finite": tiny("coordinate-median", "non-finite", FIXED, n_rows=N),
    "backdoor": tiny("mean", "backdoor(target=2)", FIXED, whole_rows=True, n_rows=N),
    "trusted samples": tiny(
        "zeno(n_bad=1)", "scaled-flip(factor=1.0)", FIXED, n_trusted=50, n_rows=N
    ),
}


def train(config: Config, folder: Path, stop_after: int | None = None) -> Any:
    """What a rank does; rank 2 asks for a stop."""
    torch.set_num_threads(1)
    ranks = Ranks({})
    n_calls = 0

    def stop() -> bool:
        nonlocal n_calls
        n_calls += 1
        return ranks.rank == 2 and n_calls == stop_after

    if ranks.is_first:
        return run(config, folder, ranks=ranks, stop=stop, checkpoint_seconds=0).n_steps
    return follow(config, ranks, stop=stop)


def train_in_one_process(config: Config, folder: Path) -> Record:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run(config, folder)
    finally:
        torch.set_num_threads(n_threads)


def assert_same_run(found: Record, wanted: Record) -> None:
    """Equal up to rounding: what a product of one slice rounds to depends on the processor."""
    for one, other in zip(found.without_times(), wanted.without_times(), strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            is_number = isinstance(value, float)
            assert one[key] == (pytest.approx(value, rel=1e-4, abs=1e-6) if is_number else value)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_record_is_that_of_one_process(workers: Workers, tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    one = train_in_one_process(config, tmp_path / "one")
    assert workers.run(train, config, tmp_path / "many") == [5, None, None, None]
    many = read_record(tmp_path / "many")
    assert_same_run(many, one)
    assert many.end == one.end
    assert [set(one) for one in many.run["ranks"]] == [{"host", "device"}] * N
    assert all(len(entry["rank_seconds"]) == N for entry in many.entries)


def test_a_stop_on_one_rank_stops_all_and_the_run_resumes(workers: Workers, tmp_path: Path) -> None:
    config = CONFIGS["bgmd"]
    assert workers.run(train, config, tmp_path / "unstopped")[0] == 5
    folder = tmp_path / "stopped"
    assert workers.run(train, config, folder, 2)[0] == 2
    assert read_record(folder).end is None
    assert workers.run(train, config, folder, 1)[0] == 3
    assert workers.run(train, config, folder)[0] == 5
    unstopped = read_record(tmp_path / "unstopped")
    assert read_record(folder).without_times() == unstopped.without_times()
    assert workers.run(train, config, folder)[0] == 5  # it has ended


def test_one_process_resumes_the_run_of_many(workers: Workers, tmp_path: Path) -> None:
    config = CONFIGS["clean"]
    one = train_in_one_process(config, tmp_path / "one")
    workers.run(train, config, tmp_path / "many", 2)
    torch.set_num_threads(1)
    assert_same_run(resume(tmp_path / "many"), one)


def test_a_run_that_diverges_ends_on_all_ranks(workers: Workers, tmp_path: Path) -> None:
    config = tiny("mean", model="mlp", optimizer=Sgd(lr=1e8), n_steps=40, n_rows=N)
    assert workers.run(train, config, tmp_path)[1:] == [None] * 3
    end = read_record(tmp_path).end
    assert end is not None
    assert end["end"] == "diverged"


def test_what_rank_0_refuses_is_refused_by_all(workers: Workers, tmp_path: Path) -> None:
    train_in_one_process(CONFIGS["clean"], tmp_path)
    found = workers.outcomes(train, CONFIGS["bgmd"], tmp_path)
    assert {one.kind for one in found} == {"ValueError"}
    assert all("`folder` must be new, or hold this very run" in one.message for one in found)


def test_another_number_of_rows_is_refused_by_all(workers: Workers, tmp_path: Path) -> None:
    found = workers.outcomes(train, tiny("mean", n_rows=6), tmp_path / "run")
    sentence = "`n_rows` must be 4, the number of ranks, each of which has one row, got 6."
    assert [one.message for one in found] == [sentence] * N
    assert not (tmp_path / "run").exists()
