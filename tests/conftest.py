"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# The same examples in every run, so that a failure means a change; no deadline on shared machines.
settings.register_profile("holdfast", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("holdfast")

os.environ["HOLDFAST_COMPILE"] = "never"  # only the tests of compilation compile

# A background job of a shell ignores Ctrl-C, and so would the commands that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def compile_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMPILE", "always")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seed torch's global generator, which draws initial parameters and dropout."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)
        yield
