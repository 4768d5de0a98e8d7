"""Studies and measurements are read as they were written, and nothing else is."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NewerRecordError
from holdfast.lab.records import (
    MeasurementRecord,
    Study,
    keep_study,
    read_measurement,
    read_study,
    write_measurement,
    write_study,
)

STUDY = Study(
    name="small-paper-quick",
    recipe="small",
    variant="paper",
    size="quick",
    title="A small study",
    about="Two methods.",
    note="Short runs.",
    command=("holdfast", "reproduce", "small"),
    place=2.0,
    runs={"a": {"method": "SGD", "share": 0.2}, "b": {"method": "GmD", "share": 0.2}},
    measurements={"h": {"n": 3}},
    paper=({"method": "SGD", "mean": 89.4, "interval": 0.3}, {"method": "GmD", "mean": None}),
)


def test_a_study_comes_back_as_it_was(tmp_path: Path) -> None:
    path = write_study(tmp_path / "new", STUDY)
    assert path.name == "small-paper-quick.study.json"
    found = read_study(path)
    assert found == STUDY
    assert list(found.runs) == ["a", "b"]  # the order in which they are shown
    assert found.references == {"a", "b", "h"}
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_a_study_is_kept_unless_it_would_lose_runs(tmp_path: Path) -> None:
    fewer = replace(STUDY, title="with fewer runs", runs={"a": {}})
    assert fewer.references < STUDY.references
    path = tmp_path / "small-paper-quick.study.json"
    keep_study(tmp_path, fewer)
    assert read_study(path) == fewer
    keep_study(tmp_path, STUDY)
    keep_study(tmp_path, fewer)
    assert read_study(path) == STUDY
    path.write_text("torn")
    keep_study(tmp_path, fewer)
    assert read_study(path) == fewer
    path.write_text(json.dumps(STUDY.to_json() | {"version": 2}))
    with pytest.raises(NewerRecordError):
        keep_study(tmp_path, STUDY)


def changed(**values: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(STUDY.to_json()))
    return data | values


DAMAGED: list[tuple[object, str]] = [
    ([], "written by holdfast"),
    (changed(format="another"), "written by holdfast"),
    (changed(version="1"), "written by holdfast"),
    (changed(more=1), "`study` must have the fields name, recipe, variant"),
    ({key: value for key, value in changed().items() if key != "runs"}, "no 'runs'"),
    (changed(title=3), "`title` must be a text"),
    (changed(place="first"), "`place` must be a number"),
    (changed(place=True), "`place` must be a number"),
    (changed(command="holdfast"), "`command` must be a list"),
    (changed(command=[1]), "`command` must be a text"),
    (changed(runs=["a"]), "`runs` must be a mapping"),
    (changed(measurements=3), "`measurements` must be a mapping"),
    (changed(runs={"a": []}), "`runs` must be a mapping"),
    (changed(runs={"a": {"share": [0.2]}}), "`labels` must be a text"),
    (changed(measurements={"a": {"is_bad": True}}), "`labels` must be a number"),
    (changed(paper={}), "`paper` must be a list"),
    (changed(paper=["89.4"]), "`paper` must be a mapping"),
]


def test_what_is_no_study_is_refused_by_name() -> None:
    for data, sentence in DAMAGED:
        with pytest.raises(ValueError, match=sentence):
            Study.from_json(data)


def test_a_newer_study_is_told_apart() -> None:
    with pytest.raises(NewerRecordError, match="update holdfast"):
        Study.from_json(changed(version=2))


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, read in product(["", "{", "[" * 100_000], [read_study, read_measurement]):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"be a complete JSON file, got .*x\.json"):
            read(path)


def test_a_measurement_comes_back_as_it_was(tmp_path: Path) -> None:
    path = write_measurement(tmp_path, "time", {"n": 3}, {"seconds": 0.5}, machine={"cores": 2})
    found = read_measurement(path)
    assert (found.config, found.result, found.machine) == (
        {"n": 3},
        {"seconds": 0.5},
        {"cores": 2},
    )
    assert path.name == f"time-{found.hash[:8]}.measurement.json"


def test_what_is_no_measurement_is_refused(tmp_path: Path) -> None:
    path = write_measurement(tmp_path, "time", {"n": 3}, {"seconds": 0.5})
    content = read_measurement(path).to_json()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"format": "x"}, "written by holdfast"),
        ({"result": 3}, "`result` must be a mapping"),
        ({"config": {"n": 4}}, "hash of its configuration"),
    ]
    for change, sentence in changes:
        with pytest.raises(ValueError, match=sentence):
            MeasurementRecord.from_json(content | change)
    with pytest.raises(NewerRecordError):
        MeasurementRecord.from_json(content | {"version": 2})


def test_nothing_that_is_not_a_number_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_measurement(tmp_path, "time", {"n": 3}, {"seconds": float("nan")})
    assert not list(tmp_path.iterdir())
