"""Fetching in a process of its own: one that is killed in the middle, one without room."""

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.lab.data._fetch import fetch_described
from tests.lab.data.server import Server, serving, slow
from tests.lab.data.tiny import BIG, GZIPPED, IMPATIENT, TINY, at, is_right, names

ROOT = Path(__file__).parents[3]

FETCH = """
import sys
from holdfast.lab.data._fetch import fetch_described
from tests.lab.data.tiny import at
fetch_described(at(sys.argv[1]), data_dir=sys.argv[2])
"""

NO_ROOM = """
import resource, sys
from holdfast.errors import FetchError
from holdfast.lab.data._fetch import fetch_described
from tests.lab.data.tiny import at
for limit, url, folder in zip(*[iter(sys.argv[1:])] * 3):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        fetch_described(at(url), data_dir=folder)
    except FetchError as error:
        sys.stdout.write(f"{error}\\n")
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_fetch_that_is_killed_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.faults[f"{BIG}.gz"] += [slow(0.2)]
    part = tmp_path / "tiny" / f"{BIG}.gz.part"
    with start(FETCH, server.url, tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size > 40_000):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    kept = part.stat().st_size
    assert 40_000 < kept < len(GZIPPED[f"{BIG}.gz"])
    assert names(tmp_path / "tiny") == {part.name}
    server.sent = 0
    fetch_described(at(server.url), data_dir=tmp_path, patience=IMPATIENT)
    assert is_right(tmp_path / "tiny")
    assert server.starts(f"{BIG}.gz") == [0, kept]
    assert server.sent <= TINY.download_bytes - kept + (
        1 << 14
    )  # the killed answer may have had a piece on its way


def test_a_full_disk_is_named_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    # The first download has no room; the second has, being zeros, but not once it is unpacked.
    with serving({f"{BIG}.gz": gzip.compress(bytes(160_000))}) as zeros:
        folders = [tmp_path / "part", tmp_path / "unpacked"]
        arguments = [100_000, server.url, folders[0], 100_000, zeros.url, folders[1]]
        with start(NO_ROOM, *arguments) as process:
            out, errors = process.communicate()
        assert len(zeros.requests) == 1
    assert errors == ""
    assert out.splitlines() == [
        f"`data_dir` must be a folder that has room and can be written to, got {folder / 'tiny'} (File too large)."
        for folder in folders
    ]
    assert [names(folder / "tiny") for folder in folders] == [set(), set()]
