"""Newer, damaged or hostile records and checkpoints are refused in one sentence and left alone."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.lab import data
from holdfast.lab.config import Config
from holdfast.lab.records import Journal
from holdfast.lab.training import _run
from holdfast.lab.training import run as train
from tests.lab.cli.commands import SMALL, assert_refused, case, invoke, timeless

CHECKPOINT = "checkpoint.pt"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its second and last step, before its end was written."""
    folder = tmp_path_factory.mktemp("original") / "run"
    assert invoke("train", *SMALL, "-q", "--steps", "2", "--folder", str(folder)).exit_code == 0
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def change(run: Path, **changes: Any) -> None:
    """Writes other values to `run.json`; None removes one."""
    content = {**json.loads((run / "run.json").read_text()), **changes}
    kept = {key: value for key, value in content.items() if value is not None}
    (run / "run.json").write_text(json.dumps(kept))


def assert_left_alone(run: Path, *words: str) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    result = invoke("resume", str(run))
    assert_refused(result, *words, code=result.exit_code)
    assert result.exit_code in (1, 2)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def assert_each_left_alone(
    file: Path, contents: dict[str, Callable[[bytes], bytes]], *words: str
) -> None:
    """The run is refused with each of these contents of the file, made of the right one."""
    right = file.read_bytes()
    for name, content in contents.items():
        with case(name):
            file.write_bytes(content(right))
            assert_left_alone(file.parent, file.name, *words)


def instead(*contents: bytes) -> dict[str, Callable[[bytes], bytes]]:
    def always(content: bytes) -> Callable[[bytes], bytes]:
        return lambda _: content

    return {repr(content)[:50]: always(content) for content in contents}


def test_the_run_itself_can_be_resumed(run: Path) -> None:
    assert invoke("resume", str(run)).exit_code == 0
    assert timeless(run)[-1] == {"end": "finished", "step": 2}


def test_a_record_of_a_newer_version_asks_for_an_update(run: Path) -> None:
    change(run, version=99, versions={"holdfast": "9.9"})
    assert_left_alone(run, "version 99", "holdfast 9.9", "update holdfast")
    change(run, version=99, versions=["9.9"])
    assert_left_alone(run, "version 99", "update holdfast")


def test_a_run_file_that_is_none_is_named(run: Path) -> None:
    def without(key: str) -> Callable[[bytes], bytes]:
        def content(right: bytes) -> bytes:
            return json.dumps({k: v for k, v in json.loads(right).items() if k != key}).encode()

        return content

    strange = instead(b"", b"[]", b"{}", b"null", bytes(range(256)), b'{"format": "holdfast run"}')
    strange |= instead(b"[" * 100_000)
    strange |= {f"without {key}": without(key) for key in ("config", "hash")}
    assert_each_left_alone(run / "run.json", strange)


def test_a_configuration_that_was_changed_is_refused(run: Path) -> None:
    right = json.loads((run / "run.json").read_text())["config"]
    changes: list[dict[str, Any]] = [
        {"unknown": 1},
        {"n_rows": "8"},
        {"n_rows": -1},
        {"data": ["x"]},
        {"data": "../../etc"},
        {"optimizer": {"name": "sgd", "lr": "x"}},
        {"rule": {"name": "krum"}},
        {"threat": []},
        {"n_steps": 5},
    ]
    for one in changes:
        with case(one):
            change(run, config={**right, **one})
            assert_left_alone(run, "run.json", "does not have its hash")


def test_an_entry_that_is_none_is_named_with_its_line(run: Path) -> None:
    lines = (b"x", b"5", b"null", b"[]", b'"end"', b"{}", b'{"step": 1}', b"\xff")
    right = (run / "metrics.jsonl").read_bytes()
    strange = instead(*(line + b"\n" + right for line in lines))
    assert_each_left_alone(run / "metrics.jsonl", strange, "line 1")


def test_an_ending_that_is_none_or_a_record_that_is_too_short_is_named(run: Path) -> None:
    strange = {"end": lambda right: right + b'{"end": "diverged"}\n', "short": lambda _: b""}
    assert_each_left_alone(run / "metrics.jsonl", strange)


def test_a_torn_entry_at_the_end_is_made_again(run: Path) -> None:
    whole = timeless(run)
    (run / CHECKPOINT).unlink()
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert invoke("resume", str(run)).exit_code == 0
    assert timeless(run)[:-1] == whole


def test_a_checkpoint_that_is_none_is_named(run: Path, tmp_path: Path) -> None:
    def saved(content: object) -> bytes:
        file = io.BytesIO()
        torch.save(content, file)
        return file.getvalue()

    strange = instead(
        b"",
        b"x" * 100,
        saved(torch.zeros(3)),
        saved({"tree": {}}),
        saved({"format": "holdfast checkpoint 2", "tree": {"step": 1}}),
        saved({"format": "holdfast checkpoint 1", "tree": []}),
        saved({"format": "holdfast checkpoint 1", "tree": {}}),
    )
    strange["the first half"] = lambda right: right[: len(right) // 2]
    train(Config(model="mlp", n_rows=8, row_size=2, n_steps=1), tmp_path / "other")
    strange["that of another run"] = lambda _: (tmp_path / "other" / CHECKPOINT).read_bytes()
    assert_each_left_alone(run / CHECKPOINT, strange)


def test_a_run_in_another_process_is_left_to_it(run: Path) -> None:
    with Journal(run):
        before = (run / "metrics.jsonl").read_bytes()
        assert_refused(invoke("resume", str(run)), "in use by another process", str(run), code=1)
        assert (run / "metrics.jsonl").read_bytes() == before


def test_of_two_runs_begun_in_one_folder_at_once_one_wins_wholly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins, and runs, after the first has seen an empty folder."""
    load, journals = data.load, []
    first, second = (Config(model="mlp", n_rows=8, row_size=2, n_steps=1, seed=i) for i in (0, 1))

    def load_while_another_begins(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(_run, "load", load)
        train(second, "run")
        journals.append(Journal(tmp_path / "run"))  # as if it were still running
        return load(*args, **kwargs)

    monkeypatch.setattr(_run, "load", load_while_another_begins)
    with pytest.raises((OSError, ValueError)):
        train(first, "run")
    for journal in journals:
        with journal:
            pass
    assert json.loads((tmp_path / "run/run.json").read_text())["config"]["seed"] == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, code in (("file", 2), ("file/below", 2), ("x" * 300, 1)):
        with case(folder):
            result = invoke("train", *SMALL, "-q", "--steps", "1", "--folder", folder)
            assert_refused(result, folder, code=code)
