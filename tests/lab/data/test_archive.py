"""Data sets that mirrors offer as one tar file: only what is wanted comes out of it, and only if it is right."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import FetchError
from holdfast.lab.data._fetch import fetch_described
from tests.lab.data.server import Server, cut_after, serving
from tests.lab.data.tiny import ARCHIVED, BIG, CONTENT, IMPATIENT, at, is_right, names, tar

MEMBERS = {f"batches/{name}": content for name, content in CONTENT.items()}
WHOLE = tar(MEMBERS)


@pytest.fixture
def mirror() -> Iterator[Server]:
    with serving({"tiny.tar.gz": WHOLE}) as running:
        yield running


def get(mirror: Server, folder: Path) -> Path:
    return fetch_described(at(mirror.url, ARCHIVED), data_dir=folder, patience=IMPATIENT)


def test_the_files_come_out_of_the_archive_and_nothing_else(mirror: Server, tmp_path: Path) -> None:
    mirror.files["tiny.tar.gz"] = tar(
        {
            "../../escaped": b"out",
            "/tmp/holdfast-escaped": b"out",
            "batches/readme.html": b"hello",
            "other/" + BIG: b"no",
            **MEMBERS,
        }
    )
    assert is_right(get(mirror, tmp_path / "a"))
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert not Path("/tmp/holdfast-escaped").exists()


def test_a_cut_archive_is_continued(mirror: Server, tmp_path: Path) -> None:
    mirror.faults["tiny.tar.gz"] += [cut_after(90_000)]
    assert is_right(get(mirror, tmp_path))
    assert mirror.starts("tiny.tar.gz") == [0, 90_000]
    assert mirror.sent == len(WHOLE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WHOLE[:100_000], r"tiny\.tar\.gz is damaged"),
        (
            WHOLE[:50_000] + bytes(100) + WHOLE[50_100:],
            rf"tiny\.tar\.gz is damaged|{BIG} has sha256:\w+, expected sha256:\w+",
        ),
        (b"<html>Sign in</html>", r"tiny\.tar\.gz is damaged"),
        (b"", r"tiny\.tar\.gz is damaged"),
        (tar({}), rf"tiny\.tar\.gz does not hold batches/{BIG}, "),
        (
            tar({**MEMBERS, f"batches/{BIG}": b"else"}),
            rf"{BIG} has sha256:\w+, expected sha256:\w+",
        ),
        (tar(dict(list(MEMBERS.items())[1:])), rf"tiny\.tar\.gz does not hold batches/{BIG}\n"),
    ],
    ids=["cut", "damaged", "html", "empty file", "empty archive", "wrong", "one missing"],
)
def test_a_corrupt_archive_is_refused(
    content: bytes, reason: str, mirror: Server, tmp_path: Path
) -> None:
    mirror.files["tiny.tar.gz"] = content
    with pytest.raises(FetchError, match=reason):
        get(mirror, tmp_path)
    assert BIG not in names(tmp_path / "tiny")
    assert all(
        (tmp_path / "tiny" / name).read_bytes() == CONTENT[name]
        for name in names(tmp_path / "tiny")
    )


def test_a_link_in_the_place_of_a_file_is_not_followed(mirror: Server, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        link = tarfile.TarInfo(f"batches/{BIG}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    mirror.files["tiny.tar.gz"] = packed.getvalue()
    with pytest.raises(FetchError, match=f"does not hold batches/{BIG}"):
        get(mirror, tmp_path)
    assert names(tmp_path / "tiny") == set()


def test_files_may_lie_in_a_subfolder(mirror: Server, tmp_path: Path) -> None:
    (tmp_path / "tiny" / "batches").mkdir(parents=True)
    for name, content in CONTENT.items():
        (tmp_path / "tiny" / "batches" / name).write_bytes(content)
    description = at(mirror.url, ARCHIVED, subfolder="batches")
    assert fetch_described(description, data_dir=tmp_path, patience=IMPATIENT) == tmp_path / "tiny"
    assert mirror.requests == []
