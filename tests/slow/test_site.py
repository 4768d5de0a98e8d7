"""The built site is whole: no dead link, no request to another host, nothing wider than a phone."""

import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import sync_playwright

from tests.lab.report.conftest import ARGUMENTS

ROOT = Path(__file__).parent.parent.parent

SHOWN = (
    "docs/index",
    "docs/guard",
    "docs/cli",
    "docs/rules",
    "docs/api/threats",
    "docs/benchmarks/core",
    "docs/results/exchange_under_attack",
    "docs/results/paper/report",
    "examples/ddp_guard",
    "README",
)
"""Pages with wide tables, long lines, formulas and figures."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `make docs` makes, without the cache of an earlier build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    subprocess.run([*command, "-c", "docs/site", ".", str(folder)], cwd=ROOT, check=True)
    return folder


class Page(HTMLParser):
    """The anchors of a page, and the addresses that it leads to or loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name == "src" or (name == "href" and tag == "link"):
                self.loaded.append(value or "")
            elif name == "href":
                self.links.append(value or "")


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead = defaultdict(set)
    for path, page in pages.items():
        for address in (*page.links, *page.loaded):
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            known = pages[target].anchors if target in pages else ()
            if not target.is_file() or (anchor and target in pages and anchor not in known):
                dead[address].add(str(path.relative_to(site)))
    assert len(pages) > 100
    assert dict(dead) == {}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_load_nothing_from_elsewhere_and_fit_a_phone(
    site: Path, scheme: Literal["light", "dark"]
) -> None:
    requested: list[str] = []
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: requested.append(str(error)))
        wide = []
        for name in SHOWN:
            page.goto((site / f"{name}.html").as_uri())
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append(name)
        browser.close()
    assert len(requested) > len(SHOWN)
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
    assert wide == []
