"""Summaries: the content of a record in less space."""

import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from holdfast.errors import NewerRecordError
from holdfast.lab.records import Journal, Record, Summary, create_record, read_record
from holdfast.lab.records._summary import Evaluation


def made(
    folder: Path, n_steps: int, *, end: dict[str, Any] | None = None, n_rows: int = 4
) -> Record:
    """A record whose values are the steps, with rows every 2 and evaluations every 5 steps."""
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
    assert (summary.hash, summary.config, summary.accuracy) == (record.hash, record.config, 0.6)
    assert (summary.has_ended, summary.has_diverged, summary.n_steps) == (True, False, 600)
    assert (summary.machine, summary.command) == ({"cores": 2}, ("holdfast",))
    assert summary.evaluations[0] == Evaluation(step=5, accuracy=0.005, test_loss=None)
    assert len(summary.evaluations) == 120
    assert summary.seconds == {
        "gradient": float(f"{median(0.1 * step for step in range(1, 601)):.4g}"),
        "evaluation": 2.0,
    }


def test_series_are_means_over_equal_parts(tmp_path: Path) -> None:
    series = Summary.of(made(tmp_path, 600)).series
    steps = range(10, 601, 10)
    assert series["step"] == tuple(steps)
    means = [float(f"{fmean(range(end - 9, end + 1)):.5g}") for end in steps]
    assert series["loss"] == tuple(means)
    assert set(series) == {"step", "loss", "n_rejected"}


def test_runs_of_any_length_have_one(tmp_path: Path) -> None:
    for n_steps in (0, 1, 7, 59, 61, 119):
        summary = Summary.of(made(tmp_path / str(n_steps), n_steps))
        steps, rows = summary.series["step"], summary.rows
        assert not summary.has_ended, n_steps
        assert steps[-1:] == ((n_steps,) if n_steps else ())
        assert len(steps) == min(n_steps, 60), n_steps
        assert len(rows.step) == len(rows.bad) == min(n_steps // 2, 60), n_steps
        assert summary.accuracy == (None if n_steps < 5 else n_steps // 5 * 5 / 1000), n_steps


def test_rows_are_thinned(tmp_path: Path) -> None:
    rows = Summary.of(made(tmp_path, 600)).rows
    assert rows.step == tuple(range(10, 601, 10))
    assert rows.weights is not None
    assert rows.weights[0] == (0.333,) * 4
    assert (rows.bad[0], rows.rejected[0]) == ((1,), (0,))


def test_diagnostics_may_be_null(tmp_path: Path) -> None:
    record = made(tmp_path, 4)
    record.entries[0] |= {"memory_norm": None, "bad_weight": None, "gap": None}
    record.entries[1] |= {"memory_norm": 2.0, "weights": [None, 1.0, 1.0, 1.0]}
    record.entries[3] |= {"memory_norm": None}
    summary = Summary.of(record)
    assert summary.series["memory_norm"] == (None, 2.0, None, None)
    assert "bad_weight" not in summary.series
    assert summary.rows.step == (4,)
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    summary = Summary.of(
        made(tmp_path, 3, end={"end": "diverged", "step": 3, "reason": "infinite"})
    )
    assert summary.has_diverged
    assert summary.accuracy is None


def test_it_comes_back_and_is_small(tmp_path: Path) -> None:
    summary = Summary.of(made(tmp_path, 600, n_rows=32))
    text = json.dumps(summary.to_json())
    assert Summary.from_json(json.loads(text)) == summary
    assert len(text) < 30_000


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"format": "x"}, "written by holdfast"),
    ({"version": "1"}, "written by holdfast"),
    ({"config": {"n_steps": 4}}, "hash of its configuration"),
    ({"more": 1}, "unknown 'more'"),
    ({"evaluations": None}, "`evaluations` must be a list"),
    ({"evaluations": [{"step": 1}]}, "no 'accuracy'"),
    ({"evaluations": [{"step": 1, "accuracy": "good"}]}, "`accuracy` must be a number"),
    ({"evaluations": [{"step": 1, "accuracy": 1.5}]}, r"`accuracy` must be in \[0, 1\]"),
    ({"evaluations": [{"step": -1, "accuracy": 0.5}]}, "`step` must be a whole number"),
    ({"n_steps": True}, "`n_steps` must be a whole number"),
    ({"n_steps": 1.5}, "`n_steps` must be a whole number"),
    ({"end": {"end": "lost"}}, "`end` must be one of finished, diverged"),
    ({"end": "finished"}, "`end` must be a mapping"),
    ({"series": {"loss": [1.0]}}, "`series` must have `step`"),
    ({"series": {"step": [1], "loss": [1.0, 2.0]}}, "lists of equal length"),
    ({"series": {"step": [None]}}, "`step` must be a whole number"),
    ({"seconds": {"gradient": float("nan")}}, "a number beyond"),
    ({"seconds": {"gradient": 1e200}}, "a number beyond"),
    ({"seconds": {"gradient": None}}, "`seconds` must be a number"),
    ({"machine": []}, "`machine` must be a mapping"),
    ({"command": "holdfast"}, "`command` must be a list"),
    ({"started": 5}, "`started` must be a text"),
    ({"rows": {"step": [], "bad": [], "rejected": []}}, "no 'weights'"),
    ({"rows": {"step": [1], "weights": [[]], "bad": [[]], "rejected": [[]]}}, "equal length"),
    ({"rows": {"step": [1], "weights": None, "bad": [], "rejected": [[]]}}, "equal length"),
]


def test_damaged_summaries_are_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    content = Summary.of(made(tmp_path, 3)).to_json()
    for change, sentence in REFUSED:
        with pytest.raises(ValueError, match=sentence):
            Summary.from_json(content | change)
    for name in ("end", "n_steps", "evaluations", "series", "seconds", "rows", "config", "hash"):
        with pytest.raises(ValueError, match=f"no '{name}'"):
            Summary.from_json({key: content[key] for key in content if key != name})
    with pytest.raises(NewerRecordError):
        Summary.from_json(content | {"version": 2})
    with pytest.raises(ValueError, match="written by holdfast"):
        Summary.from_json([])
