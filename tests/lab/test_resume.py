"""A run that was stopped or killed, and resumed, equals the run that was never interrupted."""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import holdfast.lab.training._run as module
from holdfast.lab.config import Config, config_to_json, hash_of
from holdfast.lab.data import DataSet
from holdfast.lab.models import initialized, models
from holdfast.lab.optimizers import Sgd
from holdfast.lab.records import (
    Journal,
    Record,
    extend_record,
    load_checkpoint,
    read_record,
    save_checkpoint,
)
from holdfast.lab.schedules import Cosine
from holdfast.lab.training import resume, run
from holdfast.threats import ScaledFlip
from tests.lab.cases import RUNS, TINY, tiny
from tests.lab.conftest import few_to_test
from tests.lab.processes import (
    in_process,
    kill_at_random,
    kill_at_worst_moments,
    run_on_full_disk,
)

CHECKPOINT = "checkpoint.pt"
pytestmark = pytest.mark.usefixtures("few_images")
every_run = pytest.mark.parametrize("config", RUNS.values(), ids=RUNS.keys())


def assert_same_checkpoint(found: Any, wanted: Any) -> None:
    """Equal to the last bit; only the length of the record, in which times stand, may differ."""
    if isinstance(wanted, Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(found.nan_to_num(nan=-7.0), wanted.nan_to_num(nan=-7.0))
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted.keys() - {"n_bytes"}:
            assert_same_checkpoint(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same_checkpoint(one, other)
    else:
        assert found == wanted


def assert_same_run(found: Record, wanted: Record) -> None:
    """The same record, times and machine apart, and the same last checkpoint."""
    assert found.without_times() == wanted.without_times()
    assert (found.end, found.hash) == (wanted.end, wanted.hash)
    assert_same_checkpoint(
        load_checkpoint(found.folder / CHECKPOINT), load_checkpoint(wanted.folder / CHECKPOINT)
    )


def after(n: int) -> Callable[[], bool]:
    """Says stop when it is asked the n-th time."""
    asked = iter(range(1, 10**9))
    return lambda: next(asked) == n


@every_run
def test_the_same_seed_gives_the_same_record_and_another_another(
    config: Config, tmp_path: Path
) -> None:
    first, again, other = (
        run(config, tmp_path / "1"),
        run(config, tmp_path / "2"),
        run(replace(config, seed=1), tmp_path / "3"),
    )
    assert first.n_steps == config.n_steps
    assert first.end == {"end": "finished", "step": config.n_steps}
    assert_same_run(again, first)
    assert other.without_times() != first.without_times()


@every_run
def test_a_finished_run_that_is_extended_twice_equals_the_longer_run(
    config: Config, tmp_path: Path
) -> None:
    """The ends after 2 and 4 steps are evaluated, which a run of 5 steps does after 3 and 5 only."""
    whole = run(replace(config, n_steps=5), tmp_path / "whole")
    part = run(replace(config, n_steps=2), tmp_path / "part")
    assert "accuracy" in part.entries[1]
    part = run(replace(config, n_steps=4), tmp_path / "part")
    assert [one["n_steps"] for one in part.run["extended_from"]] == [2]
    assert_same_run(resume(tmp_path / "part", n_steps=5), whole)
    assert "accuracy" not in read_record(tmp_path / "part").entries[1]


def test_an_extension_that_was_killed_at_its_start_is_made_again(tmp_path: Path) -> None:
    whole = run(replace(TINY, n_steps=5), tmp_path / "whole")
    run(replace(TINY, n_steps=4), tmp_path / "part")
    longer = replace(TINY, n_steps=5)
    # The moment after the new run.json was written: the end is still that of the shorter run.
    extend_record(tmp_path / "part", config_to_json(longer), command=[])
    assert read_record(tmp_path / "part").end is None
    assert_same_run(resume(tmp_path / "part"), whole)


def test_a_run_that_cannot_be_extended_says_why_and_stays_as_it_is(tmp_path: Path) -> None:
    cosine = replace(TINY, n_steps=2, schedule=Cosine())
    run(cosine, tmp_path / "cosine")
    with pytest.raises(ValueError, match=r"`n_steps` must stay 2 .* schedule cosine depends on"):
        run(replace(cosine, n_steps=3), tmp_path / "cosine")
    run(TINY, tmp_path / "run")
    with pytest.raises(ValueError, match="`n_steps` must be at least 5, those of the run in"):
        resume(tmp_path / "run", n_steps=4)
    (tmp_path / "run" / CHECKPOINT).unlink()
    with pytest.raises(ValueError, match=r"hold checkpoint\.pt, from which a run is extended"):
        resume(tmp_path / "run", n_steps=6)
    assert read_record(tmp_path / "run").n_steps == 5
    wild = tiny("mean", "scaled-flip", model="mlp", optimizer=Sgd(lr=1e8), n_steps=40)
    end = run(wild, tmp_path / "wild").end
    assert end is not None
    assert end["end"] == "diverged"
    with pytest.raises(ValueError, match=r"because the run in .* diverged"):
        resume(tmp_path / "wild", n_steps=90)


@every_run
def test_stopped_at_every_step_and_resumed(config: Config, tmp_path: Path) -> None:
    config = replace(config, n_steps=4)
    whole = run(config, tmp_path / "whole")
    for n in range(1, config.n_steps + 1):
        part = run(config, tmp_path / "part", stop=lambda: True)
        assert part.n_steps == n
        assert load_checkpoint(tmp_path / "part" / CHECKPOINT)["step"] == n
        assert (part.end is None) == (n < config.n_steps)
    assert_same_run(part, whole)


@every_run
def test_stopped_once_and_resumed(config: Config, tmp_path: Path) -> None:
    config = replace(config, n_steps=5)
    whole = run(config, tmp_path / "whole")
    part = run(config, tmp_path / "part", stop=after(2))
    assert (part.n_steps, part.end) == (2, None)
    assert_same_run(resume(tmp_path / "part"), whole)


def test_dropout_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    config = replace(TINY, model="lenet", n_rows=4, row_size=2, n_steps=3, evaluate_every=99)
    whole = run(config, tmp_path / "whole")
    torch.randn(17)  # the world's random numbers are of no account
    run(config, tmp_path / "part", stop=after(1))
    torch.default_generator.manual_seed(99)
    assert_same_run(resume(tmp_path / "part"), whole)


def small_resnet(
    *,
    shape: tuple[int, ...] = (1, 28, 28),
    n_classes: int = 10,
    generator: torch.Generator | None = None,
) -> torch.nn.Sequential:
    """Convolution, batch normalisation and dropout, of a size that tests can afford."""
    return initialized(
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(shape[0], 4, 5, stride=4),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 6 * 6, n_classes),
        ),
        generator,
    )


@pytest.mark.parametrize("rule", ["geometric-median", "zeno(n_bad=2)", "trusted-reference"])
def test_batch_norm_and_dropout(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models._members, "small-resnet", small_resnet)
    config = tiny(
        rule,
        "scaled-flip",
        model="small-resnet",
        n_trusted=20,
        optimizer=Sgd(lr=0.01, momentum=0.9),
    )
    whole = run(config, tmp_path / "whole")
    for n in (1, 3):
        run(config, tmp_path / str(n), stop=after(n))
        assert_same_run(resume(tmp_path / str(n)), whole)
    state = load_checkpoint(tmp_path / "whole" / CHECKPOINT)["experiment"]["model"]
    assert int(state["1.num_batches_tracked"]) > 0
    assert bool((state["1.running_mean"] != 0).any())


def test_directions_leave_running_statistics_and_random_numbers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack that is given directions and does nothing with them changes no record."""
    monkeypatch.setitem(models._members, "small-resnet", small_resnet)
    config = tiny("geometric-median", "scaled-flip", model="small-resnet", optimizer=Sgd(lr=0.01))
    plain = run(config, tmp_path / "plain")
    needed = property(lambda attack: frozenset({"true-gradient", "wrong-labels"}))
    monkeypatch.setattr(ScaledFlip, "needs_directions", needed)
    assert_same_run(run(config, tmp_path / "directed"), plain)


def test_a_finished_run_is_returned_untouched(tmp_path: Path) -> None:
    record = run(TINY, tmp_path)
    before = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()
    }
    assert set(before) == {"run.json", "metrics.jsonl", CHECKPOINT}
    seen: list[Any] = []
    for again in (
        run(TINY, tmp_path, watchers=[seen.append]),
        resume(tmp_path, watchers=[seen.append]),
    ):
        assert again.entries == record.entries
        assert again.end == record.end
    assert seen == []
    assert {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()
    } == before


@pytest.mark.parametrize("stops", [False, True])
def test_a_folder_with_another_run_is_refused(tmp_path: Path, stops: bool) -> None:
    run(TINY, tmp_path, stop=lambda: stops)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        ValueError,
        match=r"^`folder` must be new, or hold this very run, got .*, which holds another "
        r"\(`seed` is 0 there, 1 here\)\.$",
    ):
        run(replace(TINY, seed=1), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_checkpoint_of_another_run_is_not_taken_up(tmp_path: Path) -> None:
    """A folder whose run.json was lost, or into which somebody copied a checkpoint."""
    wanted = run(replace(TINY, seed=1), tmp_path / "wanted")
    run(TINY, tmp_path / "other", stop=after(3))
    for name in ("metrics.jsonl", CHECKPOINT):
        (tmp_path / "copied").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "other" / name, tmp_path / "copied" / name)
    with contextlib.suppress(ValueError):  # to refuse it is as good as to begin anew
        found = run(replace(TINY, seed=1), tmp_path / "copied")
        assert found.without_times() == wanted.without_times()


def test_a_checkpoint_that_knows_more_than_the_record_is_refused(tmp_path: Path) -> None:
    run(TINY, tmp_path, stop=after(3))
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError,
        match=r"^`folder` must hold a metrics\.jsonl of at least \d+ bytes, as its checkpoint "
        r"says, got \d+\.$",
    ):
        resume(tmp_path)
    path.unlink()
    with pytest.raises(
        ValueError,
        match=r"^`folder` must hold a metrics\.jsonl of at least \d+ bytes, as its checkpoint "
        r"says, got 0\.$",
    ):
        resume(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"random bytes, more than eight of them", None])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: bytes | None) -> None:
    run(TINY, tmp_path, stop=after(3))
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    with pytest.raises(
        ValueError, match=r"^`path` must be a whole checkpoint, got .*checkpoint\.pt"
    ):
        resume(tmp_path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run(TINY, tmp_path / "a", stop=after(3))
    run(replace(TINY, model="mlp"), tmp_path / "b", stop=after(3))
    shutil.copy(tmp_path / "b" / CHECKPOINT, tmp_path / "a" / CHECKPOINT)
    with pytest.raises((ValueError, RuntimeError)):
        resume(tmp_path / "a")


def test_a_lost_checkpoint_means_from_the_beginning(tmp_path: Path) -> None:
    whole = run(TINY, tmp_path / "whole")
    run(TINY, tmp_path / "part", stop=after(3))
    (tmp_path / "part" / CHECKPOINT).unlink()
    assert_same_run(resume(tmp_path / "part"), whole)


def test_what_was_written_after_the_checkpoint_is_written_again(tmp_path: Path) -> None:
    """An exception of the watcher stands for a kill after the record and before the checkpoint."""
    whole = run(TINY, tmp_path / "whole")
    run(TINY, tmp_path / "part", stop=after(2))

    def fail(entry: Any) -> None:
        if entry["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "part", watchers=[fail])
    assert read_record(tmp_path / "part").n_steps == 4
    assert load_checkpoint(tmp_path / "part" / CHECKPOINT)["step"] == 2
    with (tmp_path / "part" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "lo')
    assert_same_run(resume(tmp_path / "part"), whole)


def test_a_run_in_use_is_left_alone(tmp_path: Path) -> None:
    run(TINY, tmp_path, stop=after(2))
    before = read_record(tmp_path).entries
    with (
        Journal(tmp_path),
        pytest.raises(OSError, match=r"^`folder` must not be in use by another process, got "),
    ):
        resume(tmp_path)
    assert read_record(tmp_path).entries == before


def test_a_run_that_begins_while_another_prepares_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may begin another run in the folder between the check and the lock."""
    other, read = replace(TINY, seed=1), few_to_test

    def load_slowly(*given: Any, **options: Any) -> DataSet:
        monkeypatch.setattr(module, "load", read)
        run(other, tmp_path, stop=after(2))
        return read(*given, **options)

    monkeypatch.setattr(module, "load", load_slowly)
    with pytest.raises((ValueError, OSError), match=r"^`folder` must "):
        run(TINY, tmp_path)
    assert read_record(tmp_path).hash == hash_of(other)


def test_killed_at_the_worst_moments(tmp_path: Path) -> None:
    """Before and after each checkpoint, and before the first step."""
    config = RUNS["worker momentum"]
    assert in_process(kill_at_worst_moments, config, tmp_path / "killed") == 0
    assert_same_run(read_record(tmp_path / "killed"), read_record(tmp_path / "whole"))


@pytest.mark.slow
def test_killed_at_random(tmp_path: Path) -> None:
    config = replace(RUNS["mimic"], n_steps=60)
    assert in_process(kill_at_random, config, tmp_path / "killed", 12) == 0
    assert_same_run(read_record(tmp_path / "killed"), read_record(tmp_path / "whole"))


def test_a_full_disk(tmp_path: Path, data_in_memory: None) -> None:
    """Checkpoint, run.json or record (after a few checkpoints, which are small here) do not fit."""
    config = tiny(
        model="tiny-cnn",
        n_rows=150,
        row_size=1,
        n_steps=9,
        evaluate_every=99,
        rows_every=1,
        optimizer=Sgd(lr=0.01),
    )
    whole = run(config, tmp_path / "whole", checkpoint_seconds=0)
    n_record = (tmp_path / "whole" / "metrics.jsonl").stat().st_size
    n_checkpoint = (tmp_path / "whole" / CHECKPOINT).stat().st_size
    assert n_checkpoint < n_record - 500
    limits = {"checkpoint": n_checkpoint - 100, "run": 100, "record": n_record - 300}
    folders = {tmp_path / name: limit for name, limit in limits.items()}
    assert in_process(run_on_full_disk, config, folders, tmp_path / "results") == 0
    for name in limits:  # there is room again
        if (tmp_path / name / CHECKPOINT).exists():
            load_checkpoint(tmp_path / name / CHECKPOINT)
        assert not list((tmp_path / name).glob(".*"))
        assert_same_run(run(config, tmp_path / name), whole)
    assert (tmp_path / "results").read_text().splitlines() == [
        f"checkpoint OSError {CHECKPOINT}",
        "run OSError run.json",
        "record OSError metrics.jsonl",
    ]


def test_a_place_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"exists|directory"):
            run(TINY, folder)


def test_scratch_files_of_killed_processes_do_not_pile_up(tmp_path: Path) -> None:
    """A kill while a checkpoint is written leaves a partial file; the next run deletes it."""
    run(TINY, tmp_path, stop=after(2))
    scratch = tmp_path / f".{CHECKPOINT}.new"
    save_checkpoint(scratch, {"half": 1})
    resume(tmp_path)
    assert not scratch.exists()
