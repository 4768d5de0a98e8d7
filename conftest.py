"""Names and folders for executed examples."""

from collections.abc import Iterator

import pytest
import torch

from holdfast.aggregators import rules


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True)
def _example_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pages of the documentation run in an empty folder, and what they register is forgotten."""
    if not (isinstance(request.node, pytest.DoctestItem) and request.node.path.suffix == ".md"):
        yield
        return
    # Asked for here, not in the signature: a folder for each of thousands of tests takes time.
    folder = request.getfixturevalue("tmp_path")
    request.getfixturevalue("monkeypatch").chdir(folder)
    members = dict(rules._members)
    yield
    rules._members.clear()
    rules._members.update(members)
