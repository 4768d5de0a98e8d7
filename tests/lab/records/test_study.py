"""Studies and measurements are read as they were written, and nothing else is."""

import json
from dataclasses import replace
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
from holdfast.lab.records.views import (
    AccuracyTable,
    CurvePanel,
    Curves,
    Line,
    Measured,
    MeasuredLine,
    MeasuredPanel,
    MeasuredPoint,
    MeasuredValue,
    PaperCell,
    Pictures,
    Point,
    PointLine,
    PointPanel,
    Points,
    RowPanel,
    RowWeights,
    Scatter,
    ScatterPanel,
    TableRow,
    TimeSplit,
    ValueRow,
    ValueTable,
)

STUDY = Study(
    name="all-views",
    title="Everything",
    about="One of each.",
    command=("holdfast", "reproduce", "table2"),
    views=(
        AccuracyTable(
            title="t",
            columns=("SGD", "GmD"),
            rows=(
                TableRow(
                    group="",
                    label="Clean",
                    runs=(("a", "b"), ()),
                    paper=(PaperCell(mean=89.4, interval=0.3), None),
                ),
            ),
        ),
        Curves(
            title="c",
            x="step",
            y="accuracy",
            panels=(CurvePanel(title="", lines=(Line(label="SGD", runs=("a",)),)),),
        ),
        Points(
            title="p",
            x_label="share",
            y="accuracy",
            panels=(
                PointPanel(
                    title="", lines=(PointLine(label="SGD", points=(Point(x=0.1, runs=("a",)),)),)
                ),
            ),
        ),
        Measured(
            title="m",
            panels=(
                MeasuredPanel(
                    title="",
                    x_label="n",
                    y_label="s",
                    x_scale="log",
                    lines=(
                        MeasuredLine(
                            label="mean",
                            points=(MeasuredPoint(x=1, measurement="h", value="seconds"),),
                        ),
                    ),
                ),
            ),
        ),
        ValueTable(
            title="v",
            columns=("one",),
            rows=(ValueRow(label="r", cells=(MeasuredValue(text="1/2"),)),),
        ),
        Scatter(title="s", panels=(ScatterPanel(title="", measurement="h"),)),
        Pictures(title="i", measurement="h"),
        RowWeights(title="w", note="who", panels=(RowPanel(title="", run="a"),)),
        TimeSplit(title="t", lines=(Line(label="SGD", runs=("a",)),)),
    ),
)


def test_a_study_comes_back_as_it_was(tmp_path: Path) -> None:
    path = write_study(tmp_path / "new", STUDY)
    assert path.name == "all-views.study.json"
    assert read_study(path) == STUDY
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_a_study_is_kept_unless_it_would_lose_runs(tmp_path: Path) -> None:
    fewer = replace(STUDY, title="with fewer runs", views=STUDY.views[:1])
    assert fewer.references < STUDY.references
    path = tmp_path / "all-views.study.json"
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


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "written by holdfast"),
        (changed(format="another"), "written by holdfast"),
        (changed(version="1"), "written by holdfast"),
        (changed(views={}), "must be a list"),
        (changed(views=[{"kind": "cake"}]), "must be of the kinds"),
        (changed(views=["curves"]), "must be of the kinds"),
        (changed(title=3), "`title` must be a str"),
        (changed(command="holdfast"), "`command` must be a list"),
        (changed(more=1), "alone"),
        (changed(views=[{"kind": "curves", "title": "c"}]), "all that it needs"),
        (
            changed(
                views=[{"kind": "curves", "title": "c", "x": "moon", "y": "loss", "panels": []}]
            ),
            "`x` must be one of",
        ),
        (
            changed(
                views=[
                    {
                        "kind": "points",
                        "title": "",
                        "x_label": "",
                        "y": "loss",
                        "panels": [{"title": "", "lines": 1}],
                    }
                ]
            ),
            "`lines` must be a list",
        ),
    ],
)
def test_what_is_no_study_is_refused_by_name(data: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Study.from_json(data)


def test_a_newer_study_is_told_apart() -> None:
    with pytest.raises(NewerRecordError, match="update holdfast"):
        Study.from_json(changed(version=2))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_torn_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    for read in (read_study, read_measurement):
        with pytest.raises(ValueError, match=r"be a whole file, got .*x\.json"):
            read(path)


def test_a_measurement_comes_back_as_it_was(tmp_path: Path) -> None:
    path = write_measurement(tmp_path, "time", {"n": 3}, {"seconds": 0.5}, machine={"cores": 2})
    found = read_measurement(path)
    assert (found.config, found.result, found.content["machine"]) == (
        {"n": 3},
        {"seconds": 0.5},
        {"cores": 2},
    )
    assert path.name == f"time-{found.hash[:8]}.measurement.json"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "x"}, "written by holdfast"),
        ({"result": 3}, "have a result"),
        ({"config": {"n": 4}}, "does not have its hash"),
    ],
)
def test_what_is_no_measurement_is_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    content = read_measurement(
        write_measurement(tmp_path, "time", {"n": 3}, {"seconds": 0.5})
    ).content
    with pytest.raises(ValueError, match=sentence):
        MeasurementRecord.from_json(content | change)
    with pytest.raises(NewerRecordError):
        MeasurementRecord.from_json(content | {"version": 2})


def test_nothing_that_is_not_a_number_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_measurement(tmp_path, "time", {"n": 3}, {"seconds": float("nan")})
    assert not list(tmp_path.iterdir())
