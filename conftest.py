"""Names and folders for executed examples."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from holdfast.aggregators import rules
from holdfast.lab.data import data_sets
from holdfast.lab.models import models
from holdfast.lab.schemes import schemes
from holdfast.registry import Names
from holdfast.selectors import selectors
from holdfast.threats import attacks, corruptions

REGISTRIES: list[Names[Any]] = [
    *(rules, attacks, corruptions, selectors),
    *(data_sets, models, schemes),
]
"""Families to which pages add members."""


def _is_example(request: pytest.FixtureRequest, suffix: str) -> bool:
    return isinstance(request.node, pytest.DoctestItem) and request.node.path.suffix == suffix


@pytest.fixture(autouse=True)
def _example_names(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """Docstrings need not import torch; pages do, so that a reader can paste them."""
    if _is_example(request, ".py"):
        doctest_namespace["torch"] = torch
    else:  # the namespace is that of the whole session
        doctest_namespace.pop("torch", None)


@pytest.fixture(autouse=True)
def _example_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pages of the documentation run in an empty folder, and what they register is forgotten."""
    if not _is_example(request, ".md"):
        yield
        return
    # Asked for here, not in the signature: a folder for each of thousands of tests takes time.
    folder = request.getfixturevalue("tmp_path")
    request.getfixturevalue("monkeypatch").chdir(folder)
    members = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, before in zip(REGISTRIES, members, strict=True):
        registry._members.clear()
        registry._members.update(before)
