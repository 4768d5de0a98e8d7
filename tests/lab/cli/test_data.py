"""Data sets: listing them, and fetching them from a server on this machine."""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from holdfast.lab.cli import _data
from holdfast.lab.data import _data_sets, data_sets
from tests.lab.cli.commands import SMALL, assert_refused, case, finished, invoke, terminal
from tests.lab.data.server import Server, instead, serving, slow
from tests.lab.data.tiny import BIG, GZIPPED, TINY, fill, is_right, names


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(dict(GZIPPED)) as running:
        yield running


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more data set, `tiny`, whose official mirror does not answer."""
    known = MappingProxyType({**data_sets, "tiny": TINY})
    for module in (_data_sets, _data):
        monkeypatch.setattr(module, "data_sets", known)


def test_a_list_shows_all_data_sets_and_how_to_get_them() -> None:
    shown = invoke("data", "list").output
    assert all(name in shown for name in data_sets)
    assert "part of holdfast" in shown
    assert "missing (12 MB): holdfast data fetch mnist" in shown


@pytest.mark.usefixtures("tiny")
def test_a_list_shows_where_a_data_set_lies_whatever_the_name_of_the_folder() -> None:
    for name in ("own", "[red]", "[/]", "a [bold]b[/bold]", ":cat:"):
        with case(name):
            fill(Path(name, "tiny"))
            assert f" {name}/tiny" in invoke("data", "list", "--data-dir", name).output


@pytest.mark.usefixtures("tiny")
def test_a_data_set_is_fetched_from_a_mirror_into_a_folder(server: Server, tmp_path: Path) -> None:
    result = invoke("data", "fetch", "tiny", "--mirror", server.url, "--data-dir", "own")
    assert result.exit_code == 0, result.output
    assert is_right(tmp_path / "own/tiny")
    assert "tiny is in own/tiny" in result.output
    assert f"Fetching {BIG}.gz from {server.url.removeprefix('http://')}" in result.output
    again = invoke("data", "fetch", "tiny", "--data-dir", "own", "-q")
    assert again.output == "tiny is in own/tiny\n"


@pytest.mark.usefixtures("tiny")
def test_wrong_bytes_are_refused_and_not_left(server: Server, tmp_path: Path) -> None:
    server.faults[f"{BIG}.gz"] = [instead(b"evil")] * 9
    result = invoke("data", "fetch", "tiny", "--mirror", server.url, "--data-dir", "own")
    assert_refused(result, "could not be fetched", server.url.removeprefix("http://"), code=4)
    assert not (tmp_path / "own/tiny" / BIG).exists()


@pytest.mark.usefixtures("tiny")
def test_a_mirror_without_the_files_is_named(server: Server) -> None:
    server.files.clear()
    result = invoke("data", "fetch", "tiny", "--mirror", server.url)
    assert_refused(result, "404", "By hand", code=4)


@pytest.mark.usefixtures("tiny")
def test_without_a_connection_the_error_tells_what_to_do() -> None:
    assert_refused(invoke("data", "fetch", "tiny"), "Connection refused", "By hand", code=4)


@pytest.mark.usefixtures("tiny")
def test_a_mirror_that_is_no_web_folder_is_refused() -> None:
    for mirror in ("not an address", "file:///etc/", "ftp://x/", ""):
        with case(mirror):
            assert_refused(invoke("data", "fetch", "tiny", "--mirror", mirror), "mirror")


def test_an_unknown_data_set_is_refused() -> None:
    for name in ("../../x", "[/]", ""):
        with case(name):
            assert_refused(invoke("data", "fetch", name), "fashion-mnist-slice")


def test_bundled_data_need_not_be_fetched() -> None:
    assert "fashion-mnist-slice is in" in invoke("data", "fetch", "fashion-mnist-slice").output


def test_missing_data_have_an_exit_code_of_their_own(tmp_path: Path) -> None:
    result = invoke("train", *SMALL, "--data", "mnist", "--offline", "-q")
    assert_refused(result, "mnist", "holdfast data fetch mnist", code=4)
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_ends_a_download_and_the_next_is_whole(server: Server, tmp_path: Path) -> None:
    server.faults[f"{BIG}.gz"] = [slow(1.0)]  # eleven seconds
    fetched = ["data", "fetch", "tiny", "--data-dir", "own"]
    with terminal(tmp_path, *fetched, mirror=server.url) as shown:
        shown.until(lambda: server.sent > 30_000 and "Fetching tiny" in shown.text)
        shown.type(b"\x03")
        assert shown.code() == 130
        assert "Traceback" not in shown.text
    assert names(tmp_path / "own/tiny") == set()
    code, out, error = finished(tmp_path, *fetched, mirror=server.url)
    assert code == 0, error
    assert "\x1b" not in out
    assert is_right(tmp_path / "own/tiny")
