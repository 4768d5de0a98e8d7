"""Records and checkpoints that are newer, damaged or hostile are refused in one sentence, and left as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from holdfast.lab import data
from holdfast.lab.records import Journal
from holdfast.lab.training import _run
from tests.lab.cli.commands import SMALL, assert_refused, invoke, timeless

FORMAT = "holdfast checkpoint 1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed after its second and last step, before its end was written."""
    folder = tmp_path / "run"
    assert invoke("train", *SMALL, "-q", "--steps", "2", "--folder", str(folder)).exit_code == 0
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))
    return folder


def change(run: Path, **changes: Any) -> None:
    """Other values in `run.json`; those that are None are taken out."""
    content = {**json.loads((run / "run.json").read_text()), **changes}
    (run / "run.json").write_text(
        json.dumps({key: value for key, value in content.items() if value is not None})
    )


def config_with(run: Path, **changes: Any) -> dict[str, Any]:
    return {**json.loads((run / "run.json").read_text())["config"], **changes}


def assert_left_alone(run: Path, *words: str) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    result = invoke("resume", str(run))
    assert_refused(result, *words, code=result.exit_code)
    assert result.exit_code in (1, 2)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_the_run_itself_can_be_resumed(run: Path) -> None:
    assert invoke("resume", str(run)).exit_code == 0
    assert timeless(run)[-1] == {"end": "finished", "step": 2}


def test_a_record_of_a_newer_version_asks_for_an_update(run: Path) -> None:
    change(run, version=99, versions={"holdfast": "9.9"})
    assert_left_alone(run, "version 99", "holdfast 9.9", "update holdfast")


def test_a_newer_record_may_have_any_form(run: Path) -> None:
    change(run, version=99, versions=["9.9"])
    assert_left_alone(run, "version 99", "update holdfast")


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"null", bytes(range(256)), b'{"format": "holdfast run"}'],
    ids=repr,
)
def test_a_run_file_that_is_none_is_named(run: Path, content: bytes) -> None:
    (run / "run.json").write_bytes(content)
    assert_left_alone(run, "run.json")


def test_a_run_file_that_is_too_deep_is_named(run: Path) -> None:
    (run / "run.json").write_bytes(b"[" * 100_000)
    assert_left_alone(run, "run.json")


@pytest.mark.parametrize("missing", ["config", "hash"])
def test_a_run_file_without_its_parts_is_named(run: Path, missing: str) -> None:
    change(run, **{missing: None})
    assert_left_alone(run, "run.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"unknown": 1},
        {"n_rows": "8"},
        {"n_rows": -1},
        {"data": ["x"]},
        {"data": "../../etc"},
        {"optimizer": {"name": "sgd", "lr": "x"}},
        {"aggregator": {"name": "krum"}},
        {"threat": []},
        {"n_steps": 5},
    ],
    ids=str,
)
def test_a_configuration_that_was_changed_is_refused(run: Path, changes: dict[str, Any]) -> None:
    change(run, config=config_with(run, **changes))
    assert_left_alone(run)


@pytest.mark.parametrize(
    "line", [b"x", b"5", b"null", b"[]", b'"end"', b"{}", b'{"step": 1}', b"\xff"], ids=repr
)
def test_an_entry_that_is_none_is_named_with_its_line(run: Path, line: bytes) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert_left_alone(run, "metrics.jsonl", "line 1")


def test_an_ending_that_is_none_is_named(run: Path) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"end": "diverged"}\n')
    assert_left_alone(run, "metrics.jsonl")


def test_a_torn_entry_at_the_end_is_made_again(run: Path) -> None:
    whole = timeless(run)
    (run / "checkpoint.pt").unlink()
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert invoke("resume", str(run)).exit_code == 0
    assert timeless(run)[:-1] == whole


def test_a_record_shorter_than_its_checkpoint_says_is_refused(run: Path) -> None:
    (run / "metrics.jsonl").write_bytes(b"")
    assert_left_alone(run, "metrics.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 100,
        b"\xff" * 8 + b"{}",
        save({"a": torch.zeros(3)}),
        save({"a": torch.zeros(3)}, {"format": "holdfast checkpoint 2", "tree": "{}"}),
        save({"a": torch.zeros(3)}, {"format": FORMAT}),
        save({"a": torch.zeros(3)}, {"format": FORMAT, "tree": "x"}),
        save({"a": torch.zeros(3)}, {"format": FORMAT, "tree": "[]"}),
        save({"a": torch.zeros(3)}, {"format": FORMAT, "tree": '{"pairs": []}'}),
        save(
            {"a": torch.zeros(3)}, {"format": FORMAT, "tree": '{"pairs": [["step", "tensor:9"]]}'}
        ),
    ],
    ids=[
        "empty",
        "text",
        "long header",
        "stranger",
        "newer",
        "no tree",
        "bad tree",
        "list",
        "nothing in it",
        "no tensor",
    ],
)
def test_a_checkpoint_that_is_none_is_named(run: Path, content: bytes) -> None:
    (run / "checkpoint.pt").write_bytes(content)
    assert_left_alone(run, "checkpoint.pt")


def test_the_first_half_of_a_checkpoint_is_named(run: Path) -> None:
    path = run / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert_left_alone(run, "checkpoint.pt")


def test_the_checkpoint_of_another_run_is_named(run: Path, tmp_path: Path) -> None:
    assert (
        invoke(
            "train", *SMALL, "-q", "--steps", "2", "--model", "mlp", "--folder", "other"
        ).exit_code
        == 0
    )
    (run / "checkpoint.pt").write_bytes((tmp_path / "other/checkpoint.pt").read_bytes())
    assert_left_alone(run, "checkpoint.pt")


def test_a_run_that_another_process_is_at_is_left_to_it(run: Path) -> None:
    with Journal(run):
        before = (run / "metrics.jsonl").read_bytes()
        assert_refused(invoke("resume", str(run)), "in use by another process", str(run), code=1)
        assert (run / "metrics.jsonl").read_bytes() == before


def test_of_two_runs_begun_in_one_folder_at_once_one_wins_wholly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins, and runs, after the first has seen an empty folder."""
    load, journals = data.load, []

    def load_while_another_begins(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(_run, "load", load)
        assert (
            invoke(
                "train", *SMALL, "-q", "--steps", "1", "--seed", "1", "--folder", "run"
            ).exit_code
            == 0
        )
        journals.append(Journal(tmp_path / "run"))  # as if it were still at it
        return load(*args, **kwargs)

    monkeypatch.setattr(_run, "load", load_while_another_begins)
    result = invoke("train", *SMALL, "-q", "--steps", "1", "--seed", "0", "--folder", "run")
    for journal in journals:
        with journal:
            pass
    assert result.exit_code != 0
    assert json.loads((tmp_path / "run/run.json").read_text())["config"]["seed"] == 1


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/below", "x" * 300):
        result = invoke("train", *SMALL, "-q", "--steps", "1", "--folder", folder)
        assert_refused(result, folder, code=1)
