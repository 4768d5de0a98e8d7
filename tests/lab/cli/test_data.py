"""Data sets: what there is, and getting them from a server on this machine."""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from holdfast.lab.cli import _data
from holdfast.lab.data import _data_sets, data_sets
from tests.lab.cli.commands import (
    SMALL,
    WITH_TINY,
    assert_refused,
    finished,
    invoke,
    started,
    terminal,
)
from tests.lab.data.server import Server, instead, serving, slow
from tests.lab.data.tiny import BIG, GZIPPED, TINY, fill, is_right, names


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(dict(GZIPPED)) as running:
        yield running


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more data set, `tiny`, whose official mirror nobody answers at."""
    known = MappingProxyType({**data_sets, "tiny": TINY})
    for module in (_data_sets, _data):
        monkeypatch.setattr(module, "data_sets", known)


def test_a_list_says_what_there_is_and_how_to_get_the_rest() -> None:
    shown = invoke("data", "list").output
    assert all(name in shown for name in data_sets)
    assert "comes with holdfast" in shown
    assert "not here (12 MB): holdfast data fetch mnist" in shown


@pytest.mark.usefixtures("tiny")
def test_a_list_says_where_a_data_set_lies(tmp_path: Path) -> None:
    fill(tmp_path / "own" / "tiny")
    assert " own/tiny" in invoke("data", "list", "--data-dir", "own").output


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["[red]", "[/]", "a [bold]b[/bold]", ":cat:"])
def test_a_folder_of_any_name_is_shown_as_it_is(tmp_path: Path, name: str) -> None:
    fill(tmp_path / name / "tiny")
    assert f"{name}/tiny" in invoke("data", "list", "--data-dir", name).output


@pytest.mark.usefixtures("tiny")
def test_a_data_set_is_fetched_from_a_mirror_into_a_folder(server: Server, tmp_path: Path) -> None:
    result = invoke("data", "fetch", "tiny", "--mirror", server.url, "--data-dir", "own")
    assert result.exit_code == 0, result.output
    assert is_right(tmp_path / "own/tiny")
    assert "tiny is in own/tiny" in result.output
    assert f"Fetching {BIG}.gz from {server.url.removeprefix('http://')}" in result.output
    assert (
        invoke("data", "fetch", "tiny", "--data-dir", "own", "-q").output == "tiny is in own/tiny\n"
    )


@pytest.mark.usefixtures("tiny")
def test_wrong_bytes_are_refused_and_not_left(server: Server, tmp_path: Path) -> None:
    server.faults[f"{BIG}.gz"] = [instead(b"evil")] * 9
    result = invoke("data", "fetch", "tiny", "--mirror", server.url, "--data-dir", "own")
    assert_refused(result, "could not be fetched", server.url.removeprefix("http://"), code=4)
    assert not (tmp_path / "own/tiny" / BIG).exists()


@pytest.mark.usefixtures("tiny")
def test_a_mirror_without_the_files_is_told(server: Server) -> None:
    server.files.clear()
    assert_refused(
        invoke("data", "fetch", "tiny", "--mirror", server.url), "404", "By hand", code=4
    )


@pytest.mark.usefixtures("tiny")
def test_a_machine_that_is_offline_is_told_what_to_do() -> None:
    assert_refused(invoke("data", "fetch", "tiny"), "Connection refused", "By hand", code=4)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("mirror", ["not an address", "file:///etc/", "ftp://x/", ""])
def test_a_mirror_that_is_no_web_folder_is_refused(mirror: str) -> None:
    assert_refused(invoke("data", "fetch", "tiny", "--mirror", mirror), "mirror")


@pytest.mark.parametrize("name", ["../../x", "[/]", ""])
def test_an_unknown_data_set_is_refused(name: str) -> None:
    assert_refused(invoke("data", "fetch", name), "fashion-mnist-slice")


def test_what_comes_with_the_library_need_not_be_fetched() -> None:
    assert "fashion-mnist-slice is in" in invoke("data", "fetch", "fashion-mnist-slice").output


def test_missing_data_have_an_exit_code_of_their_own(tmp_path: Path) -> None:
    result = invoke("train", *SMALL, "--data", "mnist", "--offline", "-q")
    assert_refused(result, "mnist", "holdfast data fetch mnist", code=4)
    assert not (tmp_path / "runs").exists()


def test_processes_fetch_and_tell_what_is_missing(server: Server, tmp_path: Path) -> None:
    fetched = ["data", "fetch", "tiny", "--mirror", server.url, "--data-dir", "own"]
    with (
        started(tmp_path, *fetched, command=WITH_TINY) as first,
        started(tmp_path, "train", *SMALL, "--data", "mnist", "--offline") as second,
    ):
        assert first.wait() == 0, first.error
        assert "tiny is in own/tiny" in first.out
        assert is_right(tmp_path / "own/tiny")
        assert "\x1b" not in first.out
        assert second.wait() == 4
        assert "holdfast data fetch mnist" in second.error
        assert "\x1b" not in second.error
        assert not (tmp_path / "runs").exists()


def test_ctrl_c_ends_a_download_and_the_next_is_whole(server: Server, tmp_path: Path) -> None:
    server.faults[f"{BIG}.gz"] = [slow(1.0)]  # eleven seconds
    fetched = ["data", "fetch", "tiny", "--mirror", server.url, "--data-dir", "own"]
    with terminal(tmp_path, *fetched, command=WITH_TINY) as shown:
        shown.until(lambda: server.sent > 30_000 and "Fetching" in shown.text)
        shown.type(b"\x03")
        assert shown.end() == 130
        assert "Traceback" not in shown.text
    assert names(tmp_path / "own/tiny") == set()
    code, _out, error = finished(tmp_path, *fetched, command=WITH_TINY)
    assert code == 0, error
    assert is_right(tmp_path / "own/tiny")
