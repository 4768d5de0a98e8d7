"""One download by itself: the part is the file, whatever lay there and whatever the server answers."""

from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.lab.data._download import Download
from holdfast.lab.data._source import PassingError
from holdfast.lab.data._store import write_all
from tests.lab.data.server import Fault, Server, cut_after, shifted, status, whole
from tests.lab.data.tiny import BIG, GZIPPED, IMPATIENT

NAME = f"{BIG}.gz"
WHOLE = GZIPPED[NAME]


@pytest.mark.parametrize(
    ("before", "faults", "resumed"),
    [
        (b"", [], False),
        (WHOLE[:70_000], [], True),
        (WHOLE, [], True),
        (WHOLE + b"more", [], False),
        (WHOLE[:70_000], [shifted], False),
        (WHOLE[:70_000], [whole], False),
        (WHOLE[:70_000], [cut_after(10_000)], True),
        (WHOLE[:70_000], [status(416)], False),
    ],
    ids=[
        "nothing",
        "beginning",
        "all",
        "too long",
        "another range",
        "no range",
        "cut",
        "refused range",
    ],
)
def test_the_part_becomes_the_file(
    before: bytes, faults: list[Fault], resumed: bool, server: Server, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    part.write_bytes(before)
    server.faults[NAME] += faults
    download = Download(f"{server.url}/{NAME}", part, IMPATIENT, lambda done, total: None)
    download.run()
    assert part.read_bytes() == WHOLE
    assert download.resumed == resumed


def test_what_came_before_a_lasting_cut_stays(server: Server, tmp_path: Path) -> None:
    server.faults[NAME] += [cut_after(10_000)] * 3
    with pytest.raises(
        PassingError, match=rf"^the connection was cut after 30000 of {len(WHOLE)} bytes$"
    ):
        Download(
            f"{server.url}/{NAME}", tmp_path / "part", IMPATIENT, lambda done, total: None
        ).run()
    assert (tmp_path / "part").read_bytes() == WHOLE[:30_000]


def test_partial_writes_are_completed(tmp_path: Path) -> None:
    class Trickle(FileIO):
        def write(self, content: Any, /) -> int:
            return super().write(content[:3])

    with Trickle(str(tmp_path / "file"), "w") as file:
        write_all(file, b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
