"""Every test of this folder has a cache of its own and no data folder, proxy or npm package but what it sets up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.data.server import Server, serving
from tests.lab.data.tiny import GZIPPED


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where the tiny data set is cached."""
    return tmp_path / "cache" / "holdfast" / "data" / "tiny"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the files of the tiny data set."""
    with serving(dict(GZIPPED)) as running:
        yield running
