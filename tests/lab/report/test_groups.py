"""Runs without a study are grouped by configuration; only the seed may differ in a group."""

from dataclasses import replace
from typing import Any

from holdfast.aggregators import Krum
from holdfast.lab.config import Config, Threat, config_to_json, parse_rule
from holdfast.lab.optimizers import Sgd
from holdfast.lab.records import Summary, config_hash
from holdfast.lab.report._run_groups import group_curves, group_runs, group_summary, group_table
from holdfast.lab.report.figures import chart
from holdfast.lab.report.figures._line_panel import LinePanel
from holdfast.threats import Adversaries, ScaledFlip
from tests.lab.report.samples import collection, summary


def run(accuracy: float = 0.8, config: Config | None = None, **settings: Any) -> Summary:
    """A run of a real configuration."""
    own = config_to_json(replace(config or Config(), **settings))
    return replace(summary(accuracy), config=own, hash=config_hash(own))


def table(*runs: Summary) -> list[dict[str, str]]:
    found = group_table(group_runs(runs))
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def lines(*runs: Summary) -> dict[str, dict[str, list[int]]]:
    """Steps of the pieces of each line, by title of the panel and label."""
    drawn = chart(group_curves(group_runs(runs)), collection(*runs))
    found: dict[str, dict[str, list[int]]] = {}
    for panel in drawn.panels:
        assert isinstance(panel, LinePanel)
        steps = {trace.label: [int(spot.x) for spot in trace.spots] for trace in panel.traces}
        found[panel.title] = steps
    return found


def test_seeds_are_one_group_and_learning_rates_are_not() -> None:
    slow, fast = Sgd(lr=0.01, momentum=0.9), Sgd(lr=0.1, momentum=0.9)
    runs = [
        run(accuracy, optimizer=optimizer, seed=seed)
        for optimizer, accuracies in ((slow, (0.6, 0.7)), (fast, (0.8, 0.9)))
        for seed, accuracy in enumerate(accuracies)
    ]
    shown = [(row["lr"], row["seeds"], row["accuracy (%)"]) for row in table(*runs)]
    assert shown == [
        ("0.01", "0, 1", "65.0 (60.0 to 70.0)"),
        ("0.1", "0, 1", "85.0 (80.0 to 90.0)"),
    ]
    assert lines(*runs) == {
        "fashion-mnist-slice, lenet, no threat": {
            "radius-filter, lr 0.01": [10, 20, 30, 40],
            "radius-filter, lr 0.1": [10, 20, 30, 40],
        }
    }


def test_no_method_vanishes_when_evaluation_steps_differ() -> None:
    often, seldom = run(evaluate_every=10), run(evaluate_every=30, seed=1)
    seldom = replace(seldom, evaluations=seldom.evaluations[2:3])
    (panel,) = lines(often, seldom).values()
    assert panel == {
        "radius-filter, evaluate_every 10": [10, 20, 30, 40],
        "radius-filter, evaluate_every 30": [30],
    }


def test_rules_and_threats_have_the_names_of_the_command_line() -> None:
    threat = Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=0.4))
    runs = [
        run(**parse_rule("bgmd")),
        run(**parse_rule("bgmd"), threat=threat),
        run(rule=Krum(n_bad=3), threat=replace(threat, adversaries=Adversaries(n_bad=3))),
    ]
    shown = sorted((row["rule"], row["threat"], row["bad"]) for row in table(*runs))
    assert shown == [
        ("bgmd", "none", ""),
        ("bgmd", "scaled-flip", "40%"),
        ("krum(n_bad=3)", "scaled-flip", "3"),
    ]
    assert sorted(lines(*runs)) == [
        "fashion-mnist-slice, lenet, no threat",
        "fashion-mnist-slice, lenet, scaled-flip 3",
        "fashion-mnist-slice, lenet, scaled-flip 40%",
    ]
    # Fields that the names tell apart need no column, nor settings that all have in common.
    assert list(table(*runs)[0]) == ["rule", "threat", "bad", "seeds", "accuracy (%)", "end"]
    assert group_summary(group_runs(runs)).endswith("data fashion-mnist-slice, model lenet.")


def test_a_method_has_one_label_in_all_panels() -> None:
    fast, slow = Sgd(lr=0.1), Sgd(lr=0.01)
    threat = Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=0.4))
    runs = run(optimizer=fast), run(optimizer=slow), run(optimizer=fast, threat=threat)
    panels = lines(*runs)
    assert [list(panel) for panel in panels.values()] == [
        ["radius-filter, lr 0.01", "radius-filter, lr 0.1"],
        ["radius-filter, lr 0.1"],
    ]
    panels = lines(run(optimizer=fast), run(optimizer=slow, threat=threat))
    assert [list(panel) for panel in panels.values()] == [["radius-filter"]] * 2


def test_what_names_do_not_tell_apart_is_a_column() -> None:
    redrawn = Adversaries(bad_fraction=0.4)
    threats = [
        Threat(attack=ScaledFlip(), adversaries=adversaries)
        for adversaries in (redrawn, replace(redrawn, redrawn=False))
    ]
    runs = [run(threat=threat, n_steps=n) for threat in threats for n in (40, 50)]
    shown = [(row["redrawn"], row["n_steps"]) for row in table(*runs)]
    assert sorted(shown) == [("false", "40"), ("false", "50"), ("true", "40"), ("true", "50")]


def test_diverged_and_unfinished_runs_are_named() -> None:
    runs = [summary(0.8), summary(seed=1, end="diverged", n_steps=5), summary(seed=2, end=None)]
    (row,) = table(*runs)
    assert row["accuracy (%)"] == "1 of 2 diverged (others 80.0, 2 of 3 seeds)"
    assert row["end"] == "finished; diverged at step 5; unfinished, step 40 of 40"


def test_foreign_configurations_are_told_apart_by_their_fields() -> None:
    krum = {"name": "krum", "n_bad": 2}
    configs: list[dict[str, Any]] = [
        {},
        {"seed": "x"},
        {"seed": 10**30},
        {"rule": [1, [2]], "threat": 5},
        {"rule": krum, "threat": {"attack": {"name": "scaled-flip"}}},
        {"rule": {**krum, "n_bad": 3}, "threat": {"attack": [], "adversaries": 3}},
        {"rule": {**krum, "n_bad": None}, "data": {"name": "digits"}, "deep": {"a": {}}},
    ]
    runs = [replace(summary(), config=one, hash=config_hash(one)) for one in configs]
    rows = table(*runs)
    assert len(rows) == 5
    rules = {"radius-filter", "krum", "krum(n_bad=2)", "unknown"}  # no field is the default
    assert {row["rule"] for row in rows} == rules
    assert sum(len(panel) for panel in lines(*runs).values()) == 5
