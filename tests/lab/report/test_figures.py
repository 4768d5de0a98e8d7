"""Figures: what is drawn, remarks on what is missing, and the panels on the page."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from holdfast.lab.records import MeasurementRecord
from holdfast.lab.report import Collection, write_report
from holdfast.lab.report._series_style import FIXED, PRINT, series_styles
from holdfast.lab.report.figures import (
    Chart,
    Curves,
    Measured,
    MeasuredPanel,
    MeasuredValue,
    Metric,
    Pictures,
    Points,
    RowWeights,
    Scatter,
    TimeSplit,
    ValueTable,
    View,
    chart,
)
from holdfast.lab.report.figures._chart import Pens
from holdfast.lab.report.figures._export import export
from holdfast.lab.report.figures._inline import inline
from holdfast.lab.report.figures._line_panel import Cross, LinePanel, Spot, Trace
from holdfast.lab.report.figures._metrics import QUANTITIES, REMARK, step_times
from holdfast.lab.report.figures._row_weights import FINE, HeatPanel
from tests.lab.report.samples import (
    HOSTILE,
    collection,
    everything,
    measurement,
    sections,
    study,
    summary,
    views,
)

FIGURES = [view for view in views() if view.kind != "accuracy-table"]
MISSING = "f" * 64


def curve(*hashes: str, y: Metric = "accuracy") -> Curves:
    return Curves(
        title="C",
        x="step",
        y=y,
        panels={"": {"SGD": hashes}},
    )


def only_panel(drawn: Chart) -> LinePanel:
    (panel,) = drawn.panels
    assert isinstance(panel, LinePanel)
    return panel


def test_curves_are_means_in_a_band_from_least_to_greatest() -> None:
    runs = [summary(accuracy, seed=i) for i, accuracy in enumerate((0.6, 0.8, 0.7))]
    panel = only_panel(chart(curve(*(run.hash for run in runs)), collection(*runs)))
    (piece,) = panel.traces[0].pieces
    last = piece[-1]
    assert (last.x, last.y, last.low, last.high) == pytest.approx((40, 70, 60, 80))
    assert (last.at, last.says) == ("step 40", "70.0 (60.0 to 80.0)")


def test_time_is_steps_times_the_time_of_a_step_without_evaluations() -> None:
    run = summary()
    view = Curves(title="C", x="seconds", y="accuracy", panels=curve(run.hash).panels)
    (piece,) = only_panel(chart(view, collection(run))).traces[0].pieces
    assert [spot.x for spot in piece] == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_gradients_of_the_same_work_take_the_same_time() -> None:
    """One run was made while the machine was slow; another has another model, whose gradient is its own."""
    usual = summary(seed=1)
    dear = replace(summary(seed=2), seconds=usual.seconds | {"aggregation": 0.019})
    slow = replace(summary(seed=3), seconds=usual.seconds | {"gradient": 0.06})
    other = replace(summary(model="lenet"), seconds={"gradient": 0.1})
    runs = (usual, dear, slow, other)
    lines = {str(i): (run.hash,) for i, run in enumerate(runs)}
    drawn = chart(
        Curves(title="C", x="seconds", y="accuracy", panels={"": lines}),
        collection(*runs),
    )
    traces = only_panel(drawn).traces
    assert [trace.pieces[0][-1].x for trace in traces] == pytest.approx([1.0, 1.6, 1.0, 4.0])
    assert drawn.remarks == (REMARK,)
    bars = chart(TimeSplit(title="T", lines=lines), collection(*runs))
    (panel,) = bars.panels
    assert [row[-1] for row in panel.table().rows] == ["25.0", "40.0", "25.0", "100.0"]
    assert bars.remarks == (REMARK,)


def test_other_devices_have_gradients_of_their_own() -> None:
    here = summary(seed=1)
    there = replace(summary(seed=2), machine={"device": "cuda"}, seconds={"gradient": 0.001})
    assert {key: parts["gradient"] for key, parts in step_times([here, there]).items()} == {
        here.hash: 0.02,
        there.hash: 0.001,
    }


def test_a_run_without_a_step_has_no_times() -> None:
    odd, usual = replace(summary(seed=1), seconds={}, machine=None), summary(seed=2)
    assert step_times([odd, usual]) == {odd.hash: {}, usual.hash: usual.seconds}


def test_where_a_seed_diverged_each_run_is_drawn_and_crosses_end_the_lost() -> None:
    runs = (
        summary(0.8),
        summary(0.2, seed=1, end="diverged", n_steps=25),
        summary(seed=2, end="diverged", n_steps=5),
    )
    panel = only_panel(chart(curve(*(run.hash for run in runs)), collection(*runs)))
    assert [len(piece) for piece in panel.traces[0].pieces] == [4, 2]
    assert [(cross.x, cross.y, cross.says) for cross in panel.crosses] == [
        (20, pytest.approx(10), "diverged at step 25"),
        (5, None, "1 of 3 diverged, the first at step 5"),
    ]


def test_an_unfinished_run_is_drawn_only_where_none_has_ended() -> None:
    done, going = summary(0.8), summary(0.1, seed=1, end=None, n_steps=20)
    found = collection(done, going)
    assert len(only_panel(chart(curve(done.hash, going.hash), found)).traces[0].pieces[0]) == 4
    drawn = chart(curve(going.hash), found)
    assert only_panel(drawn).traces[0].pieces[0][-1].says.endswith("(unfinished)")
    assert drawn.remarks == ("Its run is unfinished.",)


def test_every_metric_can_be_drawn() -> None:
    run = summary()
    last = replace(run.evaluations[-1], attack_success=0.5)
    more = dict.fromkeys(("residual", "memory_norm", "bad_weight"), (None, *([0.25] * 39)))
    run = replace(run, evaluations=(*run.evaluations[:-1], last), series=run.series | more)
    drawn = [chart(curve(run.hash, y=key), collection(run)) for key in QUANTITIES]
    assert [only_panel(one).y_label for one in drawn if only_panel(one).traces[0].pieces[0]] == [
        quantity.label for quantity in QUANTITIES.values()
    ]


def test_runs_evaluated_at_different_steps_are_drawn_each_with_their_own() -> None:
    one, other = summary(0.8), summary(0.6, seed=1)
    coarse = replace(other, evaluations=other.evaluations[1::2])
    finer = replace(other, evaluations=tuple(replace(e, step=e.step - 5) for e in one.evaluations))
    for changed, steps in ((coarse, [20, 40]), (finer, [5, 15, 25, 35])):
        panel = only_panel(chart(curve(one.hash, other.hash), collection(one, changed)))
        first, second = panel.traces[0].pieces
        assert [spot.x for spot in first] == [10, 20, 30, 40]
        assert [spot.x for spot in second] == steps
        assert all(spot.low is None for spot in (*first, *second))


def test_points_are_means_with_ranges_and_crosses_cut_their_line() -> None:
    runs = [summary(value, seed=i) for i, value in enumerate((0.8, 0.9))]
    lost = summary(seed=5, end="diverged", n_steps=5)
    places: dict[float, tuple[str, ...]] = {
        0.0: (runs[0].hash, runs[1].hash),
        0.2: (lost.hash,),
        0.4: (runs[0].hash,),
    }
    view = Points(
        title="P",
        x_label="share",
        y="accuracy",
        panels={"": {"a": places}},
    )
    panel = only_panel(chart(view, collection(*runs, lost)))
    first, last = panel.traces[0].pieces
    assert (first[0].y, first[0].low, first[0].high) == pytest.approx((85, 80, 90))
    assert first[0].says == "85.0 (80.0 to 90.0)"
    assert last[0].y == pytest.approx(80)
    assert last[0].low is None
    assert [(cross.x, cross.y, cross.says) for cross in panel.crosses] == [(0.2, None, "diverged")]


def test_exponents_are_fitted_on_two_logarithmic_axes() -> None:
    drawn = chart(views()[3], everything())
    assert drawn.tables[0].rows == (("GmD", "1.50", "3"),)
    assert only_panel(drawn).legend == {"GmD": "exponent 1.50"}


def test_values_that_are_no_numbers_are_missing() -> None:
    records = [
        measurement({"i": i}, {"seconds": value})
        for i, value in enumerate((1.0, "fast", None, True, float("nan")))
    ]
    line: dict[float, MeasuredValue] = {
        i: MeasuredValue(measurement=some.hash, value="seconds") for i, some in enumerate(records)
    }
    panel = MeasuredPanel(x_label="x", y_label="y", lines={"a": line})
    drawn = chart(Measured(title="M", panels=(panel,)), collection(*records))
    assert len(only_panel(drawn).traces[0].pieces[0]) == 1
    assert drawn.remarks == ("4 of its 5 values are missing.",)


def test_far_points_do_not_squash_the_good_ones_and_are_counted() -> None:
    drawn = chart(views()[4], everything())
    assert drawn.remarks == ("half: 1 bad point and the estimate of SGD lie outside of the axes.",)


def test_rows_without_weights_are_told() -> None:
    run = summary()
    run = replace(run, rows=replace(run.rows, weights=None))
    drawn = chart(RowWeights(title="R", panels={"CmD": run.hash}), collection(run))
    assert (drawn.panels, drawn.remarks) == ((), ("CmD: this run has no weights of rows.",))


def test_a_bad_row_that_was_believed_cannot_be_overlooked() -> None:
    panel = HeatPanel(
        title="",
        steps=(1,),
        weights=((1.0, 0.0),),
        bad=(frozenset({0, 1}),),
        rejected=(frozenset({1}),),
    )
    axes = Figure().add_subplot()
    panel.draw(axes, Pens(series_styles([tuple(panel.labels)]), PRINT))
    _, dots, frames = (image.get_array() for image in axes.images)
    assert dots is not None
    assert frames is not None
    middle, edge = FINE // 2, FINE // 2 - 2
    for row, cover in ((0, 1.0), (1, 0.0)):
        assert tuple(dots[row * FINE + middle, middle]) == (*to_rgb(PRINT["bad-row"]), 1.0)
        assert tuple(dots[row * FINE + edge, edge]) == (1.0, 1.0, 1.0, cover)
    assert frames[0, 0, 3] == 0.0
    assert tuple(frames[FINE, 0]) == (*to_rgb(PRINT["rejected-row"]), 1.0)
    assert frames[FINE + middle, middle, 3] == 0.0


def test_rows_tell_weights_when_good_and_when_bad() -> None:
    run = summary()
    drawn = chart(RowWeights(title="R", panels={"GmD": run.hash}), collection(run))
    assert drawn.panels[0].table().rows[0] == ("0", "0.45", "0", "1", "1")


def test_a_figure_without_its_runs_has_one_remark() -> None:
    value = MeasuredValue(measurement=MISSING, value="v")
    panel = MeasuredPanel(x_label="x", y_label="y", lines={"a": {1: value}})
    empty: list[View] = [
        curve(MISSING),
        Points(title="P", x_label="x", y="loss", panels={"": {"a": {0: (MISSING,)}}}),
        Measured(title="M", panels=(panel,)),
        Scatter(title="S", panels={"": MISSING}),
        Pictures(title="I", measurement=MISSING),
        RowWeights(title="R", panels={"": MISSING}),
        TimeSplit(title="T", lines={"a": (MISSING,)}),
    ]
    for view in empty:
        drawn = chart(view, collection(summary()))
        assert drawn.panels == (), view
        (remark,) = drawn.remarks
        assert remark.startswith("Nothing to show yet: "), view


def test_measurements_of_another_form_have_a_remark() -> None:
    results: list[dict[str, object]] = [
        {},
        {"good": []},
        {"good": [[1]], "bad": [], "estimates": {}},
        {"good": 3, "columns": 3},
        {"columns": ["a"], "rows": [{"label": "b", "pictures": ["no image"]}]},
    ]
    for result in results:
        record = measurement({"kind": "odd"}, result)
        for view in (
            Scatter(title="S", panels={"": record.hash}),
            Pictures(title="I", measurement=record.hash),
        ):
            drawn = chart(view, collection(record))
            assert drawn.panels == (), result
            assert record.hash[:8] in drawn.remarks[0], result


@pytest.mark.parametrize("view", FIGURES, ids=lambda view: view.kind)
def test_panels_on_the_page_have_its_colors_and_unique_ids_and_all_values(view: View) -> None:
    drawn = chart(view, everything())
    styles = series_styles([tuple(drawn.labels)])
    panels = inline(drawn, styles, "one") + inline(drawn, styles, "two")
    ids = Counter(found for panel in panels for found in re.findall(r' id="([^"]+)"', panel.svg))
    assert max(ids.values(), default=1) == 1
    for panel in panels:
        assert not re.search(r"(?:fill|stroke|color)[:=]\s*\"?(?:#|black|white|rgb)", panel.svg)
        assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", panel.svg)) <= set(ids)
        keys = {style.key for style in styles.values()}
        assert set(re.findall(r'data-series="([^"]+)"', panel.svg)) <= keys
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', panel.svg)
        assert box
        for line in panel.places["lines"]:
            for column, y, _ in line["points"]:
                assert 0 <= panel.places["columns"][column][0] <= float(box[1])
                assert 0 <= y <= float(box[2])


@given(st.lists(st.lists(st.sampled_from([*"abcdefghijklmnop", *FIXED]), max_size=14), max_size=6))
def test_no_two_labels_of_a_figure_look_alike(figures: list[list[str]]) -> None:
    styles = series_styles(figures)
    for labels in figures:
        shown = [styles[label] for label in set(labels) if label not in FIXED]
        assert len({style.key for style in shown}) == len(shown)
        assert len({(style.color, style.marker, style.dashes) for style in shown}) == len(shown)


def test_hostile_labels_are_drawn_as_they_are(tmp_path: Path) -> None:
    run = summary()
    view = Curves(
        title=HOSTILE,
        x="step",
        y="accuracy",
        panels={HOSTILE: {HOSTILE: (run.hash,)}},
    )
    drawn = chart(view, collection(run))
    (path,) = export(drawn, series_styles([tuple(drawn.labels)]), tmp_path / "hostile", ["svg"])
    assert "<script" not in path.read_text()
    assert "of $d_1$" in path.read_text()


def test_lines_are_above_any_number_of_crosses() -> None:
    spots = (Spot(x=1.0, y=50.0, at="1", says="50"), Spot(x=2.0, y=60.0, at="2", says="60"))
    trace = Trace(label="a", pieces=(spots,))
    for n_lost in (1, 3, 16, 17, 40):
        crosses = tuple(Cross(label="a", x=2.0, at="2", says="diverged") for _ in range(n_lost))
        panel = LinePanel(title="", x_label="x", y_label="y", traces=(trace,), crosses=crosses)
        axes = Figure().add_subplot()
        panel.draw(axes, Pens(series_styles([["a"]]), PRINT))
        heights = [mark.y for mark in panel.marks(axes)]
        low, high = axes.get_window_extent().get_points()[:, 1]
        assert low < heights[2], n_lost
        assert heights[2:] == sorted(set(heights[2:])), n_lost
        assert heights[-1] < heights[0] < heights[1] < high, n_lost


def test_many_methods_with_long_names_fit(tmp_path: Path) -> None:
    runs = [summary(0.5 + i / 40, seed=i) for i in range(14)]
    lines = {
        f"a method with quite a long name, number {i}": (run.hash,) for i, run in enumerate(runs)
    }
    found = collection(*runs, study(*runs))
    shown = sections(found, TimeSplit(title="T", lines=lines))
    page = write_report(found, tmp_path, formats=("png",), sections=shown)
    assert (tmp_path / "figures" / "table-a.1-time-split.png").stat().st_size > 1000
    assert "number 13" in page.read_text()


def test_measured_values_stand_in_a_table_with_what_is_missing() -> None:
    there = MeasuredValue(measurement="h", value="errors.mean")
    cells: list[MeasuredValue | str] = [
        there,
        MeasuredValue(measurement="h", value="none"),
        MeasuredValue(measurement="h", value="word"),
        "1/2",
    ]
    lost: list[MeasuredValue | str] = [
        MeasuredValue(measurement="gone", value="x"),
        MeasuredValue(measurement="h", value="errors.mean.more"),
        there,
        there,
    ]
    view = ValueTable(
        title="Values",
        columns=("a", "b", "c", "d"),
        rows={"one": tuple(cells), "two": tuple(lost)},
    )
    result = {"errors": {"mean": 0.25}, "none": None, "word": "finite"}
    record = MeasurementRecord(hash="h", config={}, result=result)
    found = Collection(runs={}, measurements={"h": record}, studies=())
    shown = chart(view, found)
    (table,) = shown.tables
    assert table.rows == (
        ("one", "0.25", "none", "finite", "1/2"),
        ("two", "not measured", "not measured", "0.25", "0.25"),
    )
    assert shown.remarks == ("2 of its 7 values are missing.",)
    empty = chart(view, Collection(runs={}, measurements={}, studies=()))
    assert not empty.tables
    assert empty.remarks == ("Nothing to show yet: all of its 7 values are missing.",)


def test_numbers_at_the_limit_are_drawn(tmp_path: Path) -> None:
    """Whole numbers of any size are JSON numbers; matplotlib cannot draw them as they are."""
    big = 10**149
    run = summary(end="diverged")
    evaluations = tuple(replace(one, step=one.step * big // 100) for one in run.evaluations)
    run = replace(run, evaluations=evaluations, seconds={"gradient": big}, n_steps=big)
    view = Curves(title="C", x="seconds", y="accuracy", panels={"": {"a": (run.hash,)}})
    drawn = chart(view, collection(run))
    styles = series_styles([tuple(drawn.labels)])
    (path,) = export(drawn, styles, tmp_path / "big", ["svg"])
    assert path.stat().st_size > 1000
    assert inline(drawn, styles, "p")
