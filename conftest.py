"""What every executed example may use."""

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True)
def _example_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of the documentation run in an empty folder."""
    if isinstance(request.node, pytest.DoctestItem) and request.node.path.suffix == ".md":
        monkeypatch.chdir(tmp_path)
