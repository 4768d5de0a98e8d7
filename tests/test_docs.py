"""Documentation is complete: every public name is on its page, every link leads somewhere."""

import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import (
    aggregators,
    distributed,
    exchange,
    federated,
    lab,
    monitor,
    optim,
    robust_step,
    selectors,
    sources,
    threats,
)
from holdfast.adapters import byzfl, torchjd
from holdfast.lab import (
    data,
    models,
    optimizers,
    paper,
    partitions,
    records,
    report,
    schedules,
    schemes,
    sweep,
    training,
)
from holdfast.registry import Registry

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

INNER = {"DenseSource", "LayerRows", "LossFunction", "Reduction", "Source"}
"""Names of `sources` that users meet only in signatures."""

BASES = {
    "OptimizerSpec",
    "Measurement",
    "Partition",
    "Schedule",
    "Scheme",
    "VERSION",
    "Watcher",
    "measurements",
}
"""Names of the lab that users meet only in signatures."""

LAB = (lab, records, data, models, optimizers, partitions, schedules, schemes, training)
EXPERIMENTS = (paper, paper.measurements, report, sweep)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def not_mentioned(names: Iterable[str], text: str) -> list[str]:
    """The names that stand neither in code nor in an import."""
    return [
        name
        for name in sorted(names)
        if not re.search(rf"`[^`]*\b{name}\b[^`]*`|import .*\b{name}\b", text)
    ]


def test_the_page_of_rules_has_every_public_name() -> None:
    text = page("rules.md")
    assert [name for name in aggregators.__all__ if f"`{name}`" not in text] == []


def test_the_page_of_rules_has_every_short_name() -> None:
    text = page("rules.md")
    names = aggregators.rules.names
    assert [name for name in names if not re.search(rf"`{name}(\(.*\))?`", text)] == []


def test_the_page_of_bgmd_has_every_public_name() -> None:
    classes = {selectors.selectors[name].__name__ for name in selectors.selectors.names}
    classes |= {robust_step.memories[name].__name__ for name in robust_step.memories.names}
    assert not_mentioned({*holdfast.__all__, *classes}, page("bgmd.md")) == []


def test_the_page_of_training_has_every_public_name() -> None:
    names = {*optim.__all__, *sources.__all__} - INNER
    assert not_mentioned(names, page("training.md")) == []


def test_the_pages_of_ranks_have_every_public_name() -> None:
    names = {*distributed.__all__, monitor.Monitor.__name__, monitor.Suspect.__name__}
    assert not_mentioned(names, page("guard.md") + page("exchange_over_ranks.md")) == []


def test_the_page_of_the_exchange_has_every_public_name() -> None:
    assert not_mentioned({*exchange.__all__}, page("exchange.md")) == []


def test_the_page_of_the_adapters_has_every_public_name() -> None:
    assert not_mentioned({*byzfl.__all__, *torchjd.__all__}, page("adapters.md")) == []


def test_the_page_of_federated_learning_has_every_public_name() -> None:
    assert not_mentioned({*federated.__all__}, page("federated.md")) == []


def test_the_page_of_the_lab_has_every_public_name() -> None:
    names = {name for room in LAB for name in room.__all__} - BASES
    assert not_mentioned(names, page("lab.md")) == []


def test_the_page_of_the_experiments_has_every_public_name() -> None:
    names = {name for room in EXPERIMENTS for name in room.__all__} - BASES
    assert not_mentioned(names, page("reproduce.md")) == []


def test_the_page_of_the_experiments_has_every_recipe() -> None:
    text = page("reproduce.md")
    assert [name for name in paper.recipes if f"`{name}`" not in text] == []


def test_the_page_of_threats_has_every_threat_by_both_names() -> None:
    text = page("threats.md")

    def missing(registry: Registry[Any]) -> list[str]:
        return [
            name
            for name in registry.names
            if not re.search(rf"\| `{name}(\(.*\))?` \| `{registry[name].__name__}` \|", text)
        ]

    families: list[Registry[Any]] = [threats.attacks, threats.corruptions, threats.report_lies]
    assert [name for family in families for name in missing(family)] == []


def test_every_public_package_has_its_page_in_the_api() -> None:
    """`make docs` fails for a public name that is not on its package's page."""
    texts = [path.read_text() for path in (ROOT / "docs/api").glob("*.md")]
    described = [name for text in texts for name in re.findall(r"automodule:: (\S+)", text)]
    public = [
        found.name
        for found in pkgutil.walk_packages(holdfast.__path__, "holdfast.")
        if "._" not in found.name and not found.name.startswith("holdfast.lab.cli")
    ]
    without_names = ["holdfast.adapters"]
    assert sorted([*described, *without_names]) == sorted(public)


def test_every_rule_states_its_cost_reference_and_example() -> None:
    wrong = []
    for name in aggregators.rules.names:
        text = " ".join((aggregators.rules[name].__doc__ or "").split())
        if ">>> " not in text:
            wrong.append(f"{name} has no example")
        if not re.search(r"eads the data|Gram space|neither family", text):
            wrong.append(f"{name} does not say what it costs")
        if "Reference: " not in text and name not in ("mean", "norm-trim"):
            wrong.append(f"{name} has no reference")
    assert wrong == []


def test_links_lead_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []
