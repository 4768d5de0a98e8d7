"""Records: what is written is read, what is torn is left out, what is damaged is named."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import NewerRecordError, RunInUseError
from holdfast.lab.records import (
    VERSION,
    Journal,
    config_hash,
    create_record,
    is_record,
    machine,
    read_record,
    versions,
)
from holdfast.lab.sweep._process import CONTEXT
from tests.lab.processes import hold_journal, in_process

CONFIG = {"seed": 0, "rule": {"name": "krum", "n_bad": 2}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_record(
        tmp_path / "run",
        CONFIG,
        versions=versions(),
        machine=machine(torch.device("cpu")),
        command=["holdfast", "train"],
    )
    return tmp_path / "run"


def entry(step: int) -> dict[str, Any]:
    return {"step": step, "loss": 1 / step, "seconds": {"data": 1.0, "gradient": 2.0 * step}}


def write(folder: Path, n: int, end: dict[str, Any] | None = None) -> None:
    with Journal(folder) as journal:
        for step in range(1, n + 1):
            journal.append(entry(step))
        if end is not None:
            journal.append(end)


def test_run_json(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    assert set(run) == {
        "format",
        "version",
        "hash",
        "config",
        "started",
        "versions",
        "machine",
        "command",
    }
    assert (run["format"], run["version"], run["config"], run["command"]) == (
        "holdfast run",
        VERSION,
        CONFIG,
        ["holdfast", "train"],
    )
    assert run["hash"] == config_hash(CONFIG)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(run["started"])).total_seconds()) < 600
    assert set(run["versions"]) == {"holdfast", "torch", "python"}
    assert run["versions"]["torch"] == str(torch.__version__)
    assert set(run["machine"]) == {
        "system",
        "architecture",
        "processor",
        "cores",
        "threads",
        "device",
    }
    assert run["machine"]["device"] == "cpu"
    assert os.uname().nodename not in json.dumps(run["machine"])
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_a_new_record_is_read(folder: Path) -> None:
    record = read_record(folder)
    assert (record.entries, record.end, record.n_steps, record.accuracy) == ([], None, 0, None)
    assert (record.config, record.hash, record.folder) == (CONFIG, config_hash(CONFIG), folder)
    assert record.seconds_per_step() == {}


def test_entries_and_end(folder: Path) -> None:
    write(folder, 3, {"end": "finished", "step": 3})
    record = read_record(folder)
    assert record.entries == [entry(step) for step in (1, 2, 3)]
    assert record.end == {"end": "finished", "step": 3}
    assert record.seconds_per_step() == {"data": 1.0, "gradient": 4.0}
    assert record.without_times() == [{"step": step, "loss": 1 / step} for step in (1, 2, 3)]


def test_accuracy_is_the_last(folder: Path) -> None:
    with Journal(folder) as journal:
        found: list[dict[str, Any]] = [{"accuracy": 0.5}, {}, {"accuracy": 0.0}, {"accuracy": None}]
        for step, accuracy in enumerate(found, start=1):
            journal.append({**entry(step), **accuracy})
    assert read_record(folder).accuracy == 0.0


def test_diagnostics_may_be_null(folder: Path) -> None:
    with Journal(folder) as journal:
        for step, weight in enumerate([None, 0.25, None, 0.75], start=1):
            journal.append({**entry(step), "gap": None, "bad_weight": weight})
    record = read_record(folder)
    assert (record.n_steps, record.bad_weight) == (4, 0.5)


def test_a_torn_last_line_is_left_out(folder: Path) -> None:
    write(folder, 3)
    path = folder / "metrics.jsonl"
    for _ in range(11):
        path.write_bytes(path.read_bytes()[:-1])
        assert [found["step"] for found in read_record(folder).entries] == [1, 2]


def test_a_torn_end_is_no_end(folder: Path) -> None:
    write(folder, 1, {"end": "finished", "step": 1})
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert read_record(folder).end is None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_line_is_named(folder: Path, number: int) -> None:
    write(folder, 3)
    path = folder / "metrics.jsonl"
    whole = path.read_bytes()
    for damage in (b"{", b"", b"\0\0", b"\xff", b'{"step": 2', b"5", b"null", b'"end"', b"[1]"):
        lines = whole.split(b"\n")
        lines[number - 1] = damage
        path.write_bytes(b"\n".join(lines))
        assert_line_is_named(folder, number)


def assert_line_is_named(folder: Path, number: int) -> None:
    with pytest.raises(
        ValueError,
        match=rf"^`folder` must hold a whole record, got .*metrics\.jsonl, line {number} ",
    ):
        read_record(folder)


@pytest.mark.parametrize(
    "release",
    [{}, {"versions": {"holdfast": "9.1"}}, {"versions": "9.1"}, {"versions": None}],
    ids=str,
)
def test_a_newer_record_is_refused(folder: Path, release: dict[str, Any]) -> None:
    (folder / "run.json").write_text(
        json.dumps({"format": "holdfast run", "version": VERSION + 1, **release})
    )
    (folder / "metrics.jsonl").write_text("something else\n")
    with pytest.raises(
        NewerRecordError,
        match=rf"version {VERSION} or older, got version {VERSION + 1}, .*update holdfast",
    ) as found:
        read_record(folder)
    assert (
        "versions" not in release
        or release["versions"] != {"holdfast": "9.1"}
        or "holdfast 9.1" in str(found.value)
    )


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b"{}", b'{"format": "other", "version": 1}',
        b'{"format": "holdfast run"}',
        b'{"format": "holdfast run", "version": "1"}', b'{"format": "holdfast run", "version": 1}',
    ],
    ids=repr,
)  # fmt: skip
def test_another_run_json_is_refused(folder: Path, content: bytes) -> None:
    (folder / "run.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"^`folder` must hold a .*run\.json"):
        read_record(folder)


@pytest.mark.parametrize(
    "changes", [{"config": {**CONFIG, "seed": 1}}, {"hash": "0" * 64}], ids=str
)
def test_a_configuration_with_another_hash_is_refused(
    folder: Path, changes: dict[str, Any]
) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ValueError, match=r"run\.json, whose configuration does not have its hash"):
        read_record(folder)


def test_no_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "run.json").mkdir()
    for folder in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        assert not is_record(folder)
        with pytest.raises(
            FileNotFoundError, match=r"^`folder` must hold a run \(run\.json\), got "
        ):
            read_record(folder)


def test_a_record_below_a_file_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"exists|directory"):
            create_record(folder, CONFIG)


def test_cut(folder: Path) -> None:
    with Journal(folder) as journal:
        assert journal.n_bytes == 0
        journal.append(entry(1))
        n_bytes = journal.n_bytes
        assert n_bytes == len((folder / "metrics.jsonl").read_bytes())
        journal.append(entry(2))
        journal.cut(n_bytes)
        journal.append({**entry(2), "again": True})
        journal.sync()
        with pytest.raises(
            ValueError,
            match=r"^`folder` must hold a metrics\.jsonl with a line that ends at byte 5",
        ):
            journal.cut(5)
        with pytest.raises(
            ValueError,
            match=r"^`folder` must hold a metrics\.jsonl of at least 99999 bytes.*, got \d+\.$",
        ):
            journal.cut(99_999)
    assert read_record(folder).entries == [entry(1), {**entry(2), "again": True}]


def test_what_is_not_json_is_not_written(folder: Path) -> None:
    with Journal(folder) as journal:
        for value in (float("nan"), float("inf"), object()):
            with pytest.raises((ValueError, TypeError)):
                journal.append({"loss": value})
        assert journal.n_bytes == 0


def test_one_process_at_a_time(folder: Path) -> None:
    report, sender = CONTEXT.Pipe(duplex=False)
    with Journal(folder) as journal:
        journal.append(entry(1))
        assert in_process(hold_journal, folder, sender) == 0
        assert report.recv() == f"`folder` must not be in use by another process, got {folder}."
        with pytest.raises(RunInUseError):
            Journal(folder)
        assert read_record(folder).entries == [entry(1)]
    with Journal(folder) as journal:
        assert journal.n_bytes > 0
    process = CONTEXT.Process(target=hold_journal, args=(folder, sender))
    process.start()
    try:
        assert report.recv() == "held"
        with pytest.raises(RunInUseError):
            Journal(folder)
    finally:
        process.kill()
        process.join()
    with Journal(folder) as journal:
        journal.append(entry(2))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    entries=st.lists(
        st.dictionaries(st.text().filter(lambda key: key != "end"), json_values, max_size=4),
        max_size=5,
    )
)
def test_any_entries(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    create_record(folder, CONFIG)
    with Journal(folder) as journal:
        for step, one in enumerate(entries, start=1):
            journal.append({**one, **entry(step)})
    assert read_record(folder).entries == [
        {**one, **entry(step)} for step, one in enumerate(entries, start=1)
    ]


@given(config=st.dictionaries(st.text(), json_values, min_size=1, max_size=5), data=st.data())
def test_the_hash_does_not_depend_on_order_but_on_all_else(
    config: dict[str, Any], data: st.DataObject
) -> None:
    keys = data.draw(st.permutations(list(config)))
    assert (
        config_hash({key: config[key] for key in keys})
        == config_hash(config)
        == config_hash(json.loads(json.dumps(config)))
    )
    assert config_hash({**config, keys[0]: [config[keys[0]]]}) != config_hash(config)
    assert config_hash({key: config[key] for key in keys[1:]}) != config_hash(config)
    assert len(config_hash(config)) == 64
