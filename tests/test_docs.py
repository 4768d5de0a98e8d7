"""Documentation is complete: every public name is on its page, every link leads somewhere."""

import re
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aggregators, lab, memory, optim, selectors, sources, threats
from holdfast.lab import (
    data,
    models,
    optimizers,
    paper,
    partitions,
    records,
    report,
    schedules,
    sweep,
    training,
)

ROOT = Path(__file__).parent.parent
INNER = ("DenseSource", "LayerRows", "LossFunction", "Reduction", "Source")
"""Names of `sources` that users meet in signatures alone."""

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("name", aggregators.__all__)
def test_every_public_name_is_on_the_page_of_rules(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "rules.md").read_text()


@pytest.mark.parametrize(
    "name", [*holdfast.__all__, *selectors.selectors.names, *memory.memories.names]
)
def test_every_public_name_of_bgmd_is_on_its_page(name: str) -> None:
    classes = {name: selectors.selectors[name].__name__ for name in selectors.selectors.names}
    classes |= {name: memory.memories[name].__name__ for name in memory.memories.names}
    assert re.search(
        rf"`[^`]*\b{classes.get(name, name)}\b[^`]*`|import .*{name}",
        (ROOT / "docs" / "bgmd.md").read_text(),
    )


@pytest.mark.parametrize(
    "name", [*optim.__all__, *(name for name in sources.__all__ if name not in INNER)]
)
def test_every_public_name_of_training_is_on_its_page(name: str) -> None:
    assert re.search(rf"`[^`]*\b{name}\b[^`]*`", (ROOT / "docs" / "training.md").read_text())


LAB = (lab, records, data, models, optimizers, partitions, schedules, training)
EXPERIMENTS = (paper, paper.measurements, report, sweep)
BASES = (
    "OptimizerSpec",
    "Measurement",
    "Partition",
    "Schedule",
    "VERSION",
    "Watcher",
    "measurements",
)
"""Names of the lab that users meet in signatures alone."""


@pytest.mark.parametrize(
    "name", sorted({name for room in LAB for name in room.__all__} - set(BASES))
)
def test_every_public_name_of_the_lab_is_on_its_page(name: str) -> None:
    assert re.search(
        rf"`[^`]*\b{name}\b[^`]*`|import .*\b{name}\b", (ROOT / "docs" / "lab.md").read_text()
    )


@pytest.mark.parametrize(
    "name", sorted({name for room in EXPERIMENTS for name in room.__all__} - set(BASES))
)
def test_every_public_name_of_the_experiments_is_on_their_page(name: str) -> None:
    assert re.search(
        rf"`[^`]*\b{name}\b[^`]*`|import .*\b{name}\b", (ROOT / "docs" / "reproduce.md").read_text()
    )


@pytest.mark.parametrize("name", paper.recipes)
def test_every_recipe_is_on_its_page(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "reproduce.md").read_text()


@pytest.mark.parametrize("name", [*threats.attacks.names, *threats.corruptions.names])
def test_every_threat_is_on_its_page_by_both_names(name: str) -> None:
    text = (ROOT / "docs" / "threats.md").read_text()
    registry: Any = threats.attacks if name in threats.attacks.names else threats.corruptions
    assert re.search(rf"\| `{name}(\(.*\))?` \| `{registry[name].__name__}` \|", text)


@pytest.mark.parametrize("name", aggregators.rules.names)
def test_every_short_name_is_on_the_page_of_rules(name: str) -> None:
    assert re.search(rf"`{name}(\(.*\))?`", (ROOT / "docs" / "rules.md").read_text())


@pytest.mark.parametrize("name", aggregators.rules.names)
def test_every_rule_states_its_formula_cost_and_example(name: str) -> None:
    text = " ".join((aggregators.rules[name].__doc__ or "").split())
    assert ">>> " in text
    assert "eads the data" in text or "Gram space" in text or "neither family" in text
    assert "Reference: " in text or name in ("mean", "norm-trim")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
