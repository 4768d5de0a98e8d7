"""One report for many tests, and a browser to look at it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from holdfast.lab.report import write_report
from tests.lab.report.samples import everything, sections

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report of everything."""
    note = "GmD **stays** where `mean` goes.\n\nA second paragraph, 5 % longer."
    found, folder = everything(), tmp_path_factory.mktemp("report")
    return write_report(found, folder, sections=sections(found, note=note)).parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: its event loop would be in the way of tests that run their own."""
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()
