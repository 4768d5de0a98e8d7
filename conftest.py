"""Names and folders for executed examples."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True)
def _example_folder(request: pytest.FixtureRequest) -> None:
    """Pages of the documentation run in an empty folder."""
    if isinstance(request.node, pytest.DoctestItem) and request.node.path.suffix == ".md":
        # Asked for here, not in the signature: a folder for each of thousands of tests takes time.
        folder = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
