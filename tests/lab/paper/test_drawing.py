"""Studies are drawn from the hashes and labels that they list."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast.lab.paper import Size, recipes, study_of
from holdfast.lab.paper.drawing import VIEWS, sections
from holdfast.lab.records import Study
from holdfast.lab.report import write_report
from holdfast.lab.report.figures import AccuracyTable, Chart, PaperCell, Points, RowWeights, View
from tests.lab.report.samples import collection, summary

CASES = [
    (recipe, variant, size)
    for recipe in recipes.values()
    for variant, size in product(recipe.variants, get_args(Size))
]


def study(name: str, n_seeds: int = 2) -> Study:
    plan = recipes[name].plan("paper", "quick", range(n_seeds))
    return study_of(recipes[name], plan, "paper", "quick")


def references(node: Any) -> Iterator[str]:
    """Yield the hashes of every run and measurement below a view."""
    if isinstance(node, str):
        yield from [node] if len(node) == 64 else []
    elif isinstance(node, dict | tuple):
        for value in node.values() if isinstance(node, dict) else node:
            yield from references(value)
    elif is_dataclass(node):
        for entry in fields(node):
            yield from references(getattr(node, entry.name))


def test_every_recipe_is_drawn() -> None:
    assert VIEWS.keys() == recipes.keys()


def test_views_refer_to_all_runs_and_measurements_of_a_study() -> None:
    for recipe, variant, size in CASES:
        own = study_of(recipe, recipe.plan(variant, size, range(2)), variant, size)
        views = VIEWS[recipe.name](own)
        assert views, own.name
        assert set(references(views)) == own.references, own.name


def only(kind: type[View], views: tuple[View, ...]) -> Any:
    (found,) = [view for view in views if isinstance(view, kind)]
    return found


def test_a_table_has_a_line_per_threat_and_share_beside_the_paper_s() -> None:
    own = study("table2")
    table = only(AccuracyTable, VIEWS["table2"](own))
    assert table.columns == ("SGD", "CmD", "GmD", "BGmD", "Algorithm 1", "BGmD, filter")
    assert [row.label for row in table.rows[:4]] == [
        "Clean",
        "Bit flip, 20%",
        "Bit flip, 40%",
        "Additive, 20%",
    ]
    assert [row.group for row in table.rows[::2]] == [
        "",
        *(["Gradient attack"] * 2),
        *(["Feature attack"] * 2),
        "Label attack",
    ]
    paper = dict(zip(table.columns, table.rows[2].paper, strict=True))
    assert paper["SGD"] == PaperCell(None)
    assert paper["GmD"] == PaperCell(85.57, 0.09)
    assert paper["Algorithm 1"] == paper["BGmD"] == PaperCell(85.67, 0.09)
    assert paper["BGmD, filter"] is None
    for column, runs in zip(table.columns, table.rows[2].runs, strict=True):
        assert [own.runs[key] for key in runs] == [
            {"threat": "Bit flip", "share": 0.4, "method": column}
        ] * 2
    assert table.note.startswith("After 600 steps")


def test_breakdown_begins_with_the_clean_runs() -> None:
    for name, shares in (("table3", [0.0, 0.2, 0.4]), ("label-corruption", [0.0, 0.1, 0.2, 0.4])):
        own = study(name)
        points = only(Points, VIEWS[name](own))
        for threat, line in (
            (title, line) for title, p in points.panels.items() for line in p.values()
        ):
            assert list(line) == shares
            threats = [{own.runs[key]["threat"] for key in runs} for runs in line.values()]
            assert threats == [{"Clean"}, *([{threat}] * (len(shares) - 1))]


def test_weights_are_those_of_the_first_seed_under_the_strongest_gradient_attacks() -> None:
    own = study("table4")
    panels = only(RowWeights, VIEWS["table4"](own)).panels
    assert list(panels) == [
        f"{threat}, 40%, {method}"
        for threat in ("Bit flip", "Additive")
        for method in ("GmD", "BGmD", "Algorithm 1")
    ]
    first = list(study("table4", 1).runs)
    assert set(panels.values()) <= set(first)


def test_labels_decide_and_hashes_are_not_recomputed() -> None:
    """Configurations may have changed since a study was written."""
    own = study("choice-of-k", 1)
    renamed = replace(own, runs={f"{i:064}": labels for i, labels in enumerate(own.runs.values())})
    assert set(references(VIEWS["choice-of-k"](renamed))) == renamed.references


def test_runs_of_a_study_that_cannot_be_drawn_are_shown_as_other_runs(tmp_path: Path) -> None:
    run = summary()
    unknown = replace(study("table2", 1), recipe="table9", runs={run.hash: {}})
    found = collection(run, unknown, study("toy", 1))
    shown, problems = sections(found, {})
    assert [section.slug for section in shown] == ["toy-paper-quick"]
    assert problems == [
        "The study table2-paper-quick is not shown, because this release has no recipe 'table9'; "
        "its runs are shown as other runs."
    ]
    write_report(found, tmp_path, formats=["svg"], sections=shown, problems=problems)
    text = (tmp_path / "report.md").read_text()
    assert "table2-paper-quick is not shown" in text
    assert "80.0" in text[text.index("## Other runs") :]


def test_labels_that_do_not_fit_are_told() -> None:
    table, toy = study("table2", 1), study("toy", 1)
    for own, reason in (
        (replace(table, runs={"0": {"method": "SGD"}}), "KeyError: 'threat'"),
        (replace(table, runs={"0": {"method": "", "threat": "", "share": "a"}}), "ValueError"),
        (replace(table, runs={}), "ValueError"),
        (replace(toy, measurements={"0": {"share": None}}), "TypeError"),
        (replace(study("table1", 1), measurements={}), "IndexError"),
    ):
        shown, (problem,) = sections(collection(own), {})
        assert shown == []
        assert f"its labels do not fit its recipe ({reason}" in problem
        assert ("its measurements are left out" in problem) == bool(own.measurements)


def test_notes_come_with_their_study() -> None:
    shown, problems = sections(collection(study("toy", 1)), {"toy-paper-quick": "Read me."})
    assert [section.note for section in shown] == ["Read me."]
    assert problems == []


def test_runs_that_are_missing_are_said_to_be_so() -> None:
    (section,), _ = sections(collection(study("large-model", 1)), {})
    for item in section.items:
        assert isinstance(item, Chart)
        assert item.remarks == ("Nothing to show yet: all of its 12 runs are missing.",)


@pytest.mark.parametrize("name", ["table3", "tiny-model"])
def test_a_study_read_from_its_file_is_drawn_the_same(name: str) -> None:
    own = study(name)
    assert VIEWS[name](Study.from_json(own.to_json())) == VIEWS[name](own)
