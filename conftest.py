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
    members = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, before in zip(REGISTRIES, members, strict=True):
        registry._members.clear()
        registry._members.update(before)
