"""Settings for all tests."""

import os

import pytest
from hypothesis import settings

# The same examples every time: a red build must mean a change, and no deadline on a shared machine.
settings.register_profile("holdfast", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("holdfast")

os.environ["HOLDFAST_COMPILE"] = "never"  # only the tests of compilation compile


@pytest.fixture
def compile_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMPILE", "always")
