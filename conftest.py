"""Names that every executed example may use."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
