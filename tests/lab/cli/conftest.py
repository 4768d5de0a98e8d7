"""Every test of this folder has a working folder and a cache of its own, and no data folder, proxy or colours but what it sets up."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.lab.cli.commands import CLEAN


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
    n_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(n_threads)  # `--threads` is for the whole process
