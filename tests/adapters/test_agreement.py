"""Rules of other libraries give the same results as ours, where docs/migrating/agreement.md says so."""

import importlib.util
import re
from pathlib import Path

import pytest
from benchmarks.agreement import LIBRARIES, N_DRAWS, F, difference

PAGE = Path(__file__).parent.parent.parent / "docs" / "migrating" / "agreement.md"


def claims() -> list[tuple[str, str, int]]:
    """Library, rule of theirs and number of rows of every cell of the page that is a difference."""
    found, library = [], ""
    for line in PAGE.read_text().partition("## One bad row")[0].splitlines():
        if name := re.fullmatch(r"\*\*(.+)\*\*", line):
            library = name[1]
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for n, cell in zip((10, 11), cells[2:], strict=False):
            if re.fullmatch(r"\de[-+]\d+", cell):
                found.append((library, cells[0].strip("`"), n))
    return found


def needed(library: str) -> pytest.MarkDecorator:
    module = library.replace("-", "_")
    is_missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(is_missing, reason=f"{library} is not installed")


def test_the_page_claims_something_for_every_library() -> None:
    assert {library for library, _, _ in claims()} == set(LIBRARIES)


@pytest.mark.parametrize(
    ("library", "name", "n"),
    [pytest.param(*claim, marks=needed(claim[0])) for claim in claims()],
)
def test_a_rule_of_theirs_equals_ours(library: str, name: str, n: int) -> None:
    pairs, wrap = LIBRARIES[library]
    theirs, text = pairs()[name]
    largest, n_alike = difference(theirs, wrap(text.format(m=n - F)), n)
    assert n_alike == N_DRAWS
    assert largest <= 1e-6
