"""Every test here has its own cache and knows the data set `tiny`; no other folder or proxy."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.lab.data import DataDescription, _data_sets
from holdfast.registry import Names
from tests.lab.data.server import Server, serving
from tests.lab.data.tiny import GZIPPED, TINY

Register = Callable[[DataDescription], None]


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Register) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    register(TINY)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Adds a data set by its description, or replaces one."""

    def add(description: DataDescription) -> None:
        known: Names[DataDescription] = Names("name")
        for one in {**_data_sets.data_sets, description.name: description}.values():
            known.register(one)
        monkeypatch.setattr(_data_sets, "data_sets", known)

    return add


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The folder of the tiny data set in the cache."""
    return tmp_path / "cache" / "holdfast" / "data" / "tiny"


@pytest.fixture
def server(register: Register) -> Iterator[Server]:
    """A server with the files of the tiny data set, as its official mirror."""
    with serving(dict(GZIPPED)) as running:
        register(replace(TINY, mirrors=(running.url,)))
        yield running
