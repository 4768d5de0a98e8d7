"""Numbers of rules, threats and parameters on pages are those of the registries."""

import re
from pathlib import Path

from holdfast import threats
from holdfast.aggregators import rules
from holdfast.aggregators._wrapper import OuterRule
from holdfast.lab.models import models

ROOT = Path(__file__).parent.parent
N_WRAPPERS = sum(issubclass(rules[name], OuterRule) for name in rules.names)
N_ROBUST = len(rules.names) - N_WRAPPERS - 1  # the mean is not robust


def text_of(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


def cells(page: str, begins_with: str) -> list[str]:
    """The cells of the only line of a table that begins like this."""
    lines = (ROOT / page).read_text().splitlines()
    (found,) = [line for line in lines if line.startswith(f"| {begins_with}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_readme_counts_rules() -> None:
    assert cells("README.md", "robust rules")[1] == f"{N_ROBUST} + {N_WRAPPERS}"


def test_the_comparison_counts_rules_and_threats() -> None:
    page = "docs/comparison.md"
    assert cells(page, "robust rules")[1] == str(N_ROBUST)
    assert cells(page, "pre-aggregators or wrappers")[1] == str(N_WRAPPERS)
    assert cells(page, "attacks on gradients")[1] == str(len(threats.attacks.names))
    assert cells(page, "corrupted data")[1] == f"{len(threats.corruptions.names)} kinds"


def test_the_changelog_counts_rules_and_threats() -> None:
    text = text_of("CHANGELOG.md")
    assert f": {N_ROBUST} robust rules, the mean, and {N_WRAPPERS} wrappers" in text
    n_attacks, n_corruptions = len(threats.attacks.names), len(threats.corruptions.names)
    n_lies = len(threats.report_lies.names)
    assert (
        f": {n_attacks} attacks on rows, {n_corruptions} corruptions of batches, "
        f"{n_lies} lies in reports" in text
    )


def test_the_page_of_the_lab_lists_the_models() -> None:
    shown = re.findall(r"\| `([\w-]+)` \| `(\w+)` \| ([\d,]+) \|", text_of("docs/lab.md"))
    built = {
        (name, name.replace("-", "_"), f"{sum(p.numel() for p in build().parameters()):,}")
        for name, build in models.items()
    }
    assert sorted(shown) == sorted(built)
