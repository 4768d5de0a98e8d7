"""One report for many tests, and a browser that opens it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from holdfast.lab.report import collect, write_report
from tests.lab.report.samples import sections, write_everything

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


NOTE = "GmD **stays** where `mean` goes.\n\nA second paragraph, 5 % longer."


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders and files with everything that a report can show."""
    root = write_everything(tmp_path_factory.mktemp("sources"))
    return [root / "deep", root / "measured", root / "more.jsonl", root / "studies"]


@pytest.fixture(scope="session")
def report(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report of everything."""
    found, folder = collect(sources), tmp_path_factory.mktemp("report")
    return write_report(found, folder, sections=sections(found, note=NOTE)).parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser per module: its event loop would disturb tests that run their own."""
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()
