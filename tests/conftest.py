"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# The same examples every time: a red build must mean a change, and no deadline on a shared machine.
settings.register_profile("holdfast", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("holdfast")

os.environ["HOLDFAST_COMPILE"] = "never"  # only the tests of compilation compile

# A shell's background job ignores Ctrl-C, and so would the commands that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def compile_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMPILE", "always")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """What is drawn from torch's global generator (first parameters, dropout) is the same in every run."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)
        yield
