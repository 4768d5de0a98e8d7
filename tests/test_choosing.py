"""The figures of docs/choosing.md stand on the pages that it links, and its rules exist."""

import re
from pathlib import Path

from holdfast.aggregators import rules

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "choosing.md").read_text()
CASES = [
    line.strip("|").split(" | ")
    for line in PAGE.split("\n## ")[0].splitlines()
    if line.startswith("| ") and "measured" not in line
]


def test_the_figures_are_on_the_linked_pages() -> None:
    assert len(CASES) == 10
    for _, _, measured in CASES:
        target, *_ = re.findall(r"\]\((results/\w+\.md)\)", measured)
        figures = re.findall(r"\b\d+\.\d\b", measured)
        assert figures
        text = (DOCS / target).read_text()
        missing = [figure for figure in figures if not re.search(rf"\b{re.escape(figure)}\b", text)]
        assert missing == [], target


def test_the_rules_exist() -> None:
    part = r"[a-z-]+(?:\([a-z_]+=[\w.]+\))?"
    found = re.findall(rf"`\"?({part}(?: \\\| {part})?)\"?`", PAGE)
    texts = {text.replace(r"\|", "|").replace("=f)", "=1)") for text in found}
    texts -= {"bgmd(fraction=0.1)"}  # a step
    assert len(texts) > 10
    for text in texts:
        rules.parse(text)
