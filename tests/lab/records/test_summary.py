"""A summary says what the record says, in less space."""

import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from holdfast.errors import NewerRecordError
from holdfast.lab.records import Journal, Record, Summary, create_record, read_record


def made(
    folder: Path, n_steps: int, *, end: dict[str, Any] | None = None, n_rows: int = 4
) -> Record:
    """A record with entries whose values are their steps, rows every 2 steps and an evaluation every 5."""
    create_record(
        folder,
        {"n_steps": n_steps, "seed": 0},
        versions={"torch": "2"},
        machine={"cores": 2},
        command=["holdfast"],
    )
    with Journal(folder) as journal:
        for step in range(1, n_steps + 1):
            entry: dict[str, Any] = {
                "step": step,
                "loss": float(step),
                "n_rejected": 1,
                "seconds": {"gradient": 0.1 * step},
            }
            if step % 2 == 0:
                entry |= {"rejected": [0], "bad": [1], "weights": [1 / 3] * n_rows}
            if step % 5 == 0:
                entry |= {"accuracy": step / 1000, "test_loss": None}
                entry["seconds"]["evaluation"] = 2.0
            journal.append(entry)
        if end is not None:
            journal.append(end)
    return read_record(folder)


def test_what_it_keeps(tmp_path: Path) -> None:
    record = made(tmp_path, 600, end={"end": "finished", "step": 600})
    summary = Summary.of(record)
    content = summary.content
    assert (summary.hash, summary.config, summary.accuracy) == (record.hash, record.config, 0.6)
    assert (summary.has_ended, summary.has_diverged, content["n_steps"]) == (True, False, 600)
    assert (content["machine"], content["command"]) == ({"cores": 2}, ["holdfast"])
    assert content["evaluations"][0] == {"step": 5, "accuracy": 0.005, "test_loss": None}
    assert len(content["evaluations"]) == 120
    assert content["seconds"] == {
        "gradient": float(f"{median(0.1 * step for step in range(1, 601)):.4g}"),
        "evaluation": 2.0,
    }


def test_series_are_means_over_equal_parts(tmp_path: Path) -> None:
    series = Summary.of(made(tmp_path, 600)).content["series"]
    assert series["step"] == list(range(10, 601, 10))
    assert series["loss"] == [
        float(f"{fmean(range(end - 9, end + 1)):.5g}") for end in series["step"]
    ]
    assert set(series) == {"step", "loss", "n_rejected"}


@pytest.mark.parametrize("n_steps", [0, 1, 7, 59, 61, 119])
def test_runs_of_any_length_have_one(tmp_path: Path, n_steps: int) -> None:
    summary = Summary.of(made(tmp_path, n_steps))
    content = summary.content
    assert not summary.has_ended
    assert content["series"]["step"][-1:] == ([n_steps] if n_steps else [])
    assert len(content["series"]["step"]) == min(n_steps, 60)
    assert len(content["rows"]["step"]) == len(content["rows"]["bad"]) == min(n_steps // 2, 60)
    assert summary.accuracy == (None if n_steps < 5 else n_steps // 5 * 5 / 1000)


def test_rows_are_thinned(tmp_path: Path) -> None:
    rows = Summary.of(made(tmp_path, 600)).content["rows"]
    assert rows["step"] == list(range(10, 601, 10))
    assert rows["weights"][0] == [0.333] * 4
    assert (rows["bad"][0], rows["rejected"][0]) == ([1], [0])


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    summary = Summary.of(
        made(tmp_path, 3, end={"end": "diverged", "step": 3, "reason": "infinite"})
    )
    assert summary.has_diverged
    assert summary.accuracy is None


def test_it_comes_back_and_is_small(tmp_path: Path) -> None:
    summary = Summary.of(made(tmp_path, 600, n_rows=32))
    text = json.dumps(summary.content)
    assert Summary.from_json(json.loads(text)).content == summary.content
    assert len(text) < 30_000


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "x"}, "written by holdfast"),
        ({"evaluations": None}, "evaluations"),
        ({"config": {"n_steps": 4}}, "does not have its hash"),
    ],
)
def test_what_is_no_summary_is_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    content = Summary.of(made(tmp_path, 3)).content
    with pytest.raises(ValueError, match=sentence):
        Summary.from_json(content | change)
    with pytest.raises(NewerRecordError):
        Summary.from_json(content | {"version": 2})
    with pytest.raises(ValueError, match="written by holdfast"):
        Summary.from_json([])
