"""Every test here has its own working folder and cache, and no variables but what it sets."""

from pathlib import Path

import pytest

from tests.lab.cli.commands import CLEAN, start_server


@pytest.fixture(scope="session", autouse=True)
def _server() -> None:
    start_server()


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
