"""Collecting: everything is found, and bad input is told in one sentence each while the rest goes on."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.lab.records import Summary, read_record, write_measurement, write_study
from holdfast.lab.report import Collection, collect, write_compact
from tests.lab.report.samples import (
    config,
    entries,
    everything,
    study,
    summary,
    write_everything,
    write_run,
)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A folder with one sound run."""
    write_run(tmp_path / "good" / "run", config(), entries(20))
    return tmp_path / "good"


def assert_one_problem(found: Collection, *words: str) -> None:
    assert len(found.problems) == 1, found.problems
    problem = found.problems[0]
    assert problem.endswith(".")
    assert "\n" not in problem
    for word in words:
        assert word in problem


def assert_same(one: Collection, other: Collection) -> None:
    assert one.runs == other.runs
    assert {key: some.result for key, some in one.measurements.items()} == {
        key: some.result for key, some in other.measurements.items()
    }
    assert one.studies == other.studies


def test_folders_are_walked(tmp_path: Path) -> None:
    found = collect([write_everything(tmp_path)])
    assert_same(found, everything())
    assert_one_problem(found, "more.jsonl", "unfinished, step 20 of 40")


def test_a_run_is_found_as_folder_or_as_its_file(good: Path) -> None:
    expected = Summary.of(read_record(good / "run"))
    for path in (good, good / "run", good / "run" / "run.json"):
        found = collect([path])
        assert list(found.runs.values()) == [expected]
        assert found.problems == ()


def test_order_and_repetition_of_paths_change_nothing(tmp_path: Path) -> None:
    root = write_everything(tmp_path)
    paths = [root, root / "deep", root / "more.jsonl", root / "studies"]
    first = collect(paths)
    random.Random(0).shuffle(paths)
    again = collect([*paths, root])
    assert_same(first, again)
    assert first.problems == again.problems


def test_compact_files_hold_everything_and_are_the_same_each_time(tmp_path: Path) -> None:
    found = collect([write_everything(tmp_path / "in")])
    path = write_compact(found, tmp_path / "out" / "all.jsonl")
    again = collect([path])
    assert_same(found, again)
    assert write_compact(again, tmp_path / "again.jsonl").read_bytes() == path.read_bytes()
    kinds = [json.loads(line)["format"] for line in path.read_text().splitlines()]
    assert kinds == sorted(
        kinds, key=["holdfast study", "holdfast measurement", "holdfast summary"].index
    )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(summary(seed=5).to_json()) + '\n{"format": "holdfast summ',
        json.dumps(summary(seed=5).to_json())
        + "\n"
        + json.dumps(summary(seed=6).to_json() | {"version": 99}),
        '{"format": "holdfast essay"}\n',
    ],
)
def test_a_compact_file_of_which_something_would_be_lost_is_not_written_over(
    good: Path, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    before = path.read_bytes()
    found = collect([good, path])
    with pytest.raises(
        ValueError,
        match=r"`compact` must not be a file that could not be read completely, got .*some\.jsonl",
    ):
        write_compact(found, os.path.relpath(path))
    assert path.read_bytes() == before
    assert len(write_compact(found, tmp_path / "other.jsonl").read_text().splitlines()) == len(
        found.runs
    )


def test_a_loss_beyond_what_can_be_shown_is_cut_and_a_configuration_is_as_it_is(
    tmp_path: Path,
) -> None:
    write_run(
        tmp_path / "run", config(lr=1e200), [{**entry, "loss": 1e300} for entry in entries(3)]
    )
    found = collect([tmp_path])
    assert found.problems == ()
    (run,) = found.runs.values()
    assert set(run.series["loss"]) == {1e150}
    assert run.config["lr"] == 1e200


def test_a_copy_of_a_run_is_no_second_run(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "copy")
    assert collect([good, tmp_path / "copy"]).problems == ()


def test_of_two_runs_of_one_configuration_the_one_that_ended_is_kept(
    good: Path, tmp_path: Path
) -> None:
    write_run(tmp_path / "another", config(), entries(30), end=None)
    found = collect([good, tmp_path / "another"])
    assert_one_problem(found, str(good / "run"), str(tmp_path / "another"), "the one that ended")
    assert [run.n_steps for run in found.runs.values()] == [20]


def test_of_two_runs_that_did_not_end_the_longer_is_kept(tmp_path: Path) -> None:
    for name, n in (("a", 10), ("b", 30)):
        write_run(tmp_path / name, config(), entries(n), end=None)
    found = collect([tmp_path])
    assert [run.n_steps for run in found.runs.values()] == [30]
    assert any("the longer one" in problem for problem in found.problems)


def test_of_two_studies_of_one_name_the_first_is_kept(good: Path, tmp_path: Path) -> None:
    write_study(tmp_path / "a", study(title="One"))
    write_study(tmp_path / "b", study(title="Two"))
    write_study(tmp_path / "c", study(title="One"))
    found = collect([good, *(tmp_path / name for name in "abc")])
    assert_one_problem(found, "table-a", str(tmp_path / "a"), str(tmp_path / "b"))
    assert [some.title for some in found.studies] == ["One"]


def test_of_two_studies_of_one_name_the_one_with_more_runs_is_kept(
    good: Path, tmp_path: Path
) -> None:
    write_study(tmp_path / "a", study(summary(), title="Less"))
    write_study(tmp_path / "b", study(summary(), summary(seed=1), title="More"))
    for folders in ("ab", "ba"):
        found = collect([good, *(tmp_path / name for name in folders)])
        assert found.problems == ()
        assert [some.title for some in found.studies] == ["More"]


def test_a_measurement_of_no_study_is_told(good: Path, tmp_path: Path) -> None:
    path = write_measurement(tmp_path, "toy", {"n": 3}, {"error": 0.1})
    assert_one_problem(collect([good, tmp_path]), str(path), "a measurement of no study")


def test_studies_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("table3", "table2", "a"):
        write_study(tmp_path, study(name=name))
    assert [some.name for some in collect([tmp_path]).studies] == ["a", "table2", "table3"]


def test_an_unfinished_run_is_kept_and_named(tmp_path: Path) -> None:
    write_run(tmp_path / "run", config(), entries(13), end=None)
    found = collect([tmp_path])
    assert_one_problem(found, str(tmp_path / "run"), "unfinished, step 13 of 40")
    assert len(found.runs) == 1


def torn_run(folder: Path) -> Path:
    write_run(folder / "torn", config(seed=1), entries(3))
    (folder / "torn" / "metrics.jsonl").write_text('{"step": 1, "lo\n{"step": 2}\n')
    return folder / "torn"


def half_written_run(folder: Path) -> Path:
    (folder / "half").mkdir()
    (folder / "half" / "run.json").write_text('{"format": "holdfast run", "ver')
    return folder / "half"


def newer_run(folder: Path) -> Path:
    return changed(write_run(folder / "newer", config(seed=1), []) / "run.json", version=99).parent


def foreign_run(folder: Path) -> Path:
    (folder / "foreign").mkdir()
    (folder / "foreign" / "run.json").write_text("[1, 2]")
    return folder / "foreign"


def newer_study(folder: Path) -> Path:
    return changed(write_study(folder, study()), version=99)


def study_of_unknown_labels(folder: Path) -> Path:
    return changed(write_study(folder, study()), runs={"0": {"share": ["a", "list"]}})


def measurement_of_another_configuration(folder: Path) -> Path:
    path = folder / "x.measurement.json"
    path.write_text(
        json.dumps(
            {
                "format": "holdfast measurement",
                "version": 1,
                "hash": "0" * 64,
                "config": {},
                "result": {},
            }
        )
    )
    return path


def compact_with_a_torn_line(folder: Path) -> Path:
    path = folder / "some.jsonl"
    path.write_text(json.dumps(summary(seed=5).to_json()) + '\n{"format": "holdfast summ')
    return path


def compact_with_a_newer_line(folder: Path) -> Path:
    path = folder / "some.jsonl"
    path.write_text(
        "\n".join(
            json.dumps(summary(seed=5).to_json() | {"version": version}) for version in (1, 99, 100)
        )
    )
    return path


def compact_with_half_a_summary(folder: Path) -> Path:
    content = summary(seed=5).to_json()
    del content["end"], content["n_steps"]
    path = folder / "some.jsonl"
    path.write_text(json.dumps(content))
    return path


def compact_with_words_for_numbers(folder: Path) -> Path:
    content = summary(seed=5).to_json()
    content["evaluations"][0]["accuracy"] = "good"
    path = folder / "some.jsonl"
    path.write_text(json.dumps(content))
    return path


def run_with_a_number_beyond_all_floats(folder: Path) -> Path:
    write_run(folder / "huge", config(seed=1), [{**entry, "loss": 10**400} for entry in entries(3)])
    return folder / "huge"


def compact_with_a_number_beyond_all_floats(folder: Path) -> Path:
    content = summary(seed=5).to_json()
    content["evaluations"][0]["accuracy"] = 10**400
    path = folder / "some.jsonl"
    path.write_text(json.dumps(content))
    return path


def compact_with(folder: Path, **values: Any) -> Path:
    path = folder / "some.jsonl"
    path.write_text(json.dumps(summary(seed=5).to_json() | values))
    return path


def compact_with_more_right_than_there_is(folder: Path) -> Path:
    return compact_with(folder, evaluations=[{"step": 1, "accuracy": 1.5}])


def compact_with_seconds_beyond_all_measure(folder: Path) -> Path:
    return compact_with(folder, seconds={"gradient": 1e308})


def compact_with_rows_without_weights(folder: Path) -> Path:
    return compact_with(folder, rows={"step": [], "bad": [], "rejected": []})


def run_with_a_loss_that_is_no_number(folder: Path) -> Path:
    write_run(folder / "nan", config(seed=1), entries(3))
    metrics = folder / "nan" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"loss": 2.0', '"loss": NaN'))
    return folder / "nan"


def compact_with_half_a_character(folder: Path) -> Path:
    return compact_with(folder, command=["holdfast", "\ud800"])


def run_nested_too_deeply(folder: Path) -> Path:
    deep: Any = {}
    for _ in range(700):
        deep = {"in": deep}
    return changed(write_run(folder / "deep", config(seed=1), []) / "run.json", config=deep).parent


def study_with_a_control_character(folder: Path) -> Path:
    return changed(write_study(folder, study()), title="a\x01b")


def study_with_a_place_beyond_all_floats(folder: Path) -> Path:
    return changed(write_study(folder, study()), place=10**400)


def measurement_beyond_all_floats(folder: Path) -> Path:
    return changed(
        write_measurement(folder, "toy", {"seed": 1}, {"errors": {"mean": 1.0}}),
        result={"errors": {"mean": 10**400}},
    )


def compact_with_lists_for_names(folder: Path) -> Path:
    strange = [{"format": []}, study().to_json() | {"runs": {"0": []}}]
    path = folder / "some.jsonl"
    path.write_text("\n".join(map(json.dumps, [*strange, summary(seed=5).to_json()])))
    return path


def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def missing_path(folder: Path) -> Path:
    return folder / "nowhere"


def other_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("hello")
    return folder / "notes.txt"


def foreign_lines(folder: Path) -> Path:
    (folder / "foreign.jsonl").write_text('{"step": 1}\nnot json\n')
    return folder / "foreign.jsonl"


def changed(path: Path, **values: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return path


BAD: list[Callable[[Path], Path]] = [
    torn_run,
    half_written_run,
    newer_run,
    foreign_run,
    newer_study,
    study_of_unknown_labels,
    measurement_of_another_configuration,
    compact_with_a_torn_line,
    compact_with_a_newer_line,
    compact_with_half_a_summary,
    compact_with_words_for_numbers,
    run_with_a_number_beyond_all_floats,
    compact_with_a_number_beyond_all_floats,
    compact_with_more_right_than_there_is,
    compact_with_seconds_beyond_all_measure,
    compact_with_rows_without_weights,
    run_with_a_loss_that_is_no_number,
    compact_with_half_a_character,
    run_nested_too_deeply,
    study_with_a_control_character,
    study_with_a_place_beyond_all_floats,
    measurement_beyond_all_floats,
    compact_with_lists_for_names,
    empty_folder,
    missing_path,
    other_file,
    foreign_lines,
]


def test_bad_input_is_named_and_stops_nothing(good: Path, tmp_path: Path) -> None:
    for make in BAD:
        folder = tmp_path / make.__name__
        folder.mkdir()
        bad = make(folder)
        found = collect([bad, good])
        assert_one_problem(found, str(bad))
        assert any(run.config["seed"] == 0 for run in found.runs.values()), make.__name__


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_cannot_be_opened_is_named(good: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    assert_one_problem(collect([good, tmp_path / "closed"]), str(tmp_path / "closed"))


def test_foreign_lines_met_on_the_way_are_no_problem(good: Path) -> None:
    foreign_lines(good)
    assert collect([good]).problems == ()


def test_a_run_s_own_lines_given_directly_are_named(good: Path) -> None:
    found = collect([good, good / "run" / "metrics.jsonl"])
    assert_one_problem(found, "metrics.jsonl", "not a compact file")


def test_nothing_but_missing_paths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`paths` must exist, got .*nowhere"):
        collect([tmp_path / "nowhere"])


def test_finding_nothing_is_refused_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"`paths` must hold a run, a study, a measurement or a compact file, got .*half.*could not be read",
    ):
        collect([half_written_run(tmp_path)])
    with pytest.raises(ValueError, match="got none"):
        collect([])


def test_what_is_written_can_be_collected_from_a_study_alone(tmp_path: Path) -> None:
    write_study(tmp_path, study(summary()))
    found = collect([tmp_path])
    assert (len(found.studies), found.runs, found.problems) == (1, {}, ())
