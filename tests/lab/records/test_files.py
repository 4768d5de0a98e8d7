"""A file is there wholly or not at all."""

from pathlib import Path

import pytest

from holdfast.lab.records._files import write_atomically
from tests.lab.processes import die_while_writing, in_process


def test_puts_the_new_content_in_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    write_atomically(path, lambda new: new.write_text("new"))
    assert path.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("existed", [False, True])
def test_a_write_that_raises_leaves_the_old_file_and_no_scratch_file(
    tmp_path: Path, begins: bool, existed: bool
) -> None:
    path = tmp_path / "file"
    if existed:
        path.write_text("old")
    for error in (OSError("full"), KeyboardInterrupt(), ValueError("wrong")):

        def write(new: Path, error: BaseException = error) -> None:
            if begins:
                new.write_text("half of i")
            raise error

        with pytest.raises(type(error)):
            write_atomically(path, write)
        assert [path.name for path in tmp_path.iterdir()] == (["file"] if existed else [])
        assert not existed or path.read_text() == "old"


def test_a_folder_in_the_way_leaves_no_scratch_file(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "file", lambda new: new.write_text("new"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_below_a_regular_file_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "file" / "below", lambda new: new.write_text("new"))


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    """A process that is killed while it writes leaves the old content."""
    path = tmp_path / "file"
    path.write_text("old")
    assert in_process(die_while_writing, path) == -9
    assert path.read_text() == "old"
