"""Runs without a study are grouped by configuration; only the seed may differ in a group."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.aggregators import Aggregator, CovarianceFilter, GeometricMedian, Krum, Mean
from holdfast.lab.config import Threat, Workers, parse_rule
from holdfast.lab.optimizers import Sgd
from holdfast.lab.records import Summary, config_hash
from holdfast.lab.report._comparison import Comparison, compare
from holdfast.lab.report._own_runs import (
    about_runs,
    accuracy_map,
    run_curves,
    run_items,
)
from holdfast.lab.report._run_groups import group_runs
from holdfast.lab.report._run_tables import run_table, worker_table
from holdfast.lab.report.figures import Chart, DataTable, chart
from holdfast.lab.report.figures._line_panel import LinePanel
from holdfast.lab.report.figures._row_weights import MIN_STEPS
from holdfast.lab.schemes import Exchange, SendEverything
from holdfast.threats import Adversaries, Huddle, LittleIsEnough, NonFinite, ScaledFlip
from tests.lab.report.samples import collection, summary
from tests.lab.report.samples import configured as run

FLIP = Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=0.4))
LITTLE = Threat(attack=LittleIsEnough(), adversaries=Adversaries(bad_fraction=0.4))
HUDDLE = Threat(attack=Huddle(), adversaries=Adversaries(bad_fraction=0.4))
NAN = Threat(attack=NonFinite(), adversaries=Adversaries(bad_fraction=0.4))
ALWAYS = Adversaries(bad_fraction=0.4, redrawn=False)


def lost(**settings: Any) -> Summary:
    """A run that diverged at its first step."""
    other = summary(end="diverged", n_steps=1)
    return replace(run(**settings), end=other.end, n_steps=1, evaluations=())


def compared(*runs: Summary) -> Comparison:
    return compare(group_runs(runs), collection(*runs))


def rows_of(found: DataTable) -> list[dict[str, str]]:
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def labels_of(*runs: Summary) -> dict[str, str]:
    contenders = compared(*runs).contenders
    return {key: one.label for one in contenders for some in one.runs.values() for key in some}


def table(*runs: Summary) -> list[dict[str, str]]:
    return rows_of(run_table(group_runs(runs), labels_of(*runs)))


def about(*runs: Summary) -> str:
    return about_runs(group_runs(runs))


def heat(*runs: Summary) -> dict[str, dict[str, str]]:
    """Texts of the cells of the accuracy table by label and column."""
    grid = accuracy_map(compared(*runs))
    ((_, found),) = grid.groups
    names = [name for name, _ in grid.columns]
    return {
        label: {name: cell.words for name, cell in zip(names, cells, strict=True)}
        for label, cells in found
    }


def lines(*runs: Summary) -> dict[str, dict[str, list[int]]]:
    """Steps of the pieces of each line, by title of the panel and label."""
    view = run_curves(group_runs(runs), compared(*runs), labels_of(*runs))
    found: dict[str, dict[str, list[int]]] = {}
    for panel in chart(view, collection(*runs)).panels:
        assert isinstance(panel, LinePanel)
        steps = {trace.label: [int(spot.x) for spot in trace.spots] for trace in panel.traces}
        found[panel.title] = steps
    return found


def test_seeds_are_one_group_and_learning_rates_are_not() -> None:
    slow, fast = Sgd(lr=0.01, momentum=0.9), Sgd(lr=0.1, momentum=0.9)
    runs = [
        run(accuracy, optimizer=optimizer, seed=seed)
        for optimizer, accuracies in ((slow, (0.6, 0.7, 0.65)), (fast, (0.8, 0.9, 0.85)))
        for seed, accuracy in enumerate(accuracies)
    ]
    shown = [(row["lr"], row["seeds"], row["accuracy (%)"], row["range"]) for row in table(*runs)]
    assert shown == [
        ("0.01", "3 seeds: 0 to 2", "65.0", "60.0 to 70.0"),
        ("0.1", "3 seeds: 0 to 2", "85.0", "80.0 to 90.0"),
    ]
    steps = [10, 20, 30, 40]
    assert lines(*runs) == {
        "clean": {"radius-filter, lr 0.01": steps, "radius-filter, lr 0.1": steps}
    }


def test_no_run_vanishes_when_evaluation_steps_differ() -> None:
    often, seldom = run(evaluate_every=10), run(0.6, evaluate_every=30, seed=1)
    seldom = replace(seldom, evaluations=seldom.evaluations[2:3])
    # How often a run is recorded does not change its result: both are seeds of one line.
    assert lines(often, seldom) == {"clean": {"radius-filter": [10, 20, 30, 40, 30]}}
    assert [row["seeds"] for row in table(often)] == ["seed 0"]
    (row,) = table(often, seldom)
    assert (row["seeds"], row["accuracy (%)"], row["range"]) == (
        "2 seeds: 0, 1",
        "62.5",
        "45.0 to 80.0",
    )


def test_rules_and_threats_have_the_names_of_the_command_line() -> None:
    runs = [
        run(**parse_rule("bgmd")),
        run(**parse_rule("bgmd"), threat=FLIP),
        run(rule=Krum(n_bad=3), threat=replace(FLIP, adversaries=Adversaries(n_bad=3))),
    ]
    shown = sorted((row["rule"], row["threat"], row["bad"]) for row in table(*runs))
    assert shown == [
        ("bgmd", "clean", ""),
        ("bgmd", "scaled-flip", "40 %"),
        ("krum(n_bad=3)", "scaled-flip", "3"),
    ]
    assert list(lines(*runs)) == ["clean", "scaled-flip, 3", "scaled-flip, 40 %"]
    # Fields that the names tell apart need no column, nor settings that all have in common.
    assert list(table(*runs)[0]) == ["rule", "threat", "bad", "seeds", "accuracy (%)"]
    assert about(*runs).startswith("model lenet, data fashion-mnist-slice, 600 steps, 32 rows")
    assert about(*runs[:2]).endswith("momentum 0.9, 40 % bad under attack, seed 0.")


def test_a_mean_of_the_parameters_that_all_runs_tested_is_said() -> None:
    runs = [run(average=0.98), run(average=0.98, rule=Mean())]
    words = "tested: mean of the parameters over some 50 steps"
    assert words in about(*runs)
    assert "tested" not in about(*runs, run(rule=Krum(n_bad=3)))
    assert "tested" not in about(run())


def test_a_method_has_one_label_in_all_panels() -> None:
    fast, slow = Sgd(lr=0.1), Sgd(lr=0.01)
    runs = run(optimizer=fast), run(optimizer=slow), run(optimizer=fast, threat=FLIP)
    both = ["radius-filter, lr 0.01", "radius-filter, lr 0.1"]
    assert [sorted(panel) for panel in lines(*runs).values()] == [both, both[1:]]
    # A setting that does not tell runs of one rule apart is in small print.
    others = run(optimizer=fast), run(optimizer=slow, rule=Mean(), threat=FLIP)
    found = {one.label: one.setting for one in compared(*others).contenders}
    assert found == {"radius-filter": "lr 0.1", "mean": "lr 0.01"}


def test_what_names_do_not_tell_apart_is_a_column() -> None:
    threats = [FLIP, replace(FLIP, adversaries=ALWAYS)]
    runs = [run(threat=threat, n_steps=n) for threat in threats for n in (40, 50)]
    shown = [(row["fixed"], row["steps"]) for row in table(*runs)]
    assert sorted(shown) == [("", "40"), ("", "50"), ("true", "40"), ("true", "50")]
    assert list(lines(*runs)) == ["scaled-flip", "scaled-flip, fixed"]


def test_many_settings_share_a_column() -> None:
    runs = [run(), run(rule=Mean(), n_steps=50, row_size=8, model="mlp", optimizer=Sgd(lr=0.1))]
    (other, first) = table(*runs)
    assert list(first) == ["rule", "settings", "seeds", "accuracy (%)"]
    assert first["settings"] == "model lenet, batch 16, lr 0.01, momentum 0.9, 600 steps"
    assert other["settings"] == "model mlp, batch 8, lr 0.1, momentum 0.0, 50 steps"


def test_diverged_and_unfinished_runs_are_named() -> None:
    runs = [summary(0.8), summary(seed=1, end="diverged", n_steps=5), summary(seed=2, end=None)]
    (row,) = table(*runs)
    assert (row["accuracy (%)"], row["range"]) == ("1 of 2 diverged", "others 80.0, 2 of 3 seeds")
    assert row["end"] == "1 finished; 1 diverged at step 5; 1 unfinished, step 40 of 40"


def test_every_rule_meets_every_attack_in_one_table_with_the_least() -> None:
    runs = [
        run(0.84),
        run(0.79, threat=FLIP),
        run(0.72, threat=LITTLE),
        run(0.85, rule=Mean()),
        lost(rule=Mean(), threat=FLIP),
        run(0.80, rule=Mean(), threat=LITTLE),
        run(0.83, rule=GeometricMedian(), threat=FLIP),
    ]
    assert heat(*runs) == {
        "radius-filter": {
            "clean": "84.0",
            "little-is-enough": "72.0",
            "scaled-flip": "79.0",
            "least over attacks": "72.0",
        },
        "mean": {
            "clean": "85.0",
            "little-is-enough": "80.0",
            "scaled-flip": "diverged",
            "least over attacks": "diverged",
        },
        "geometric-median": {
            "clean": "—",
            "little-is-enough": "—",
            "scaled-flip": "83.0",
            "least over attacks": "—",
        },
    }
    ((_, found),) = accuracy_map(compared(*runs)).groups
    best = {label: [cell.text for cell in cells if cell.is_best] for label, cells in found}
    assert best == {
        "radius-filter": ["72.0"],
        "mean": ["85.0", "80.0"],
        "geometric-median": ["83.0"],
    }


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([run(0.81)], "radius-filter reached 81.0 %."),
        ([run(0.81), run(0.7, rule=Mean())], "radius-filter reached 81.0 %, mean 70.0 %."),
        (
            [run(0.82), run(0.795, threat=FLIP), lost(rule=Mean(), threat=FLIP)],
            "radius-filter kept 79.5 % under scaled-flip (82.0 % without attack), "
            "where mean diverged.",
        ),
        (
            [
                *(run(0.7, threat=threat) for threat in (FLIP, LITTLE)),
                *(run(0.1, rule=Mean(), threat=threat) for threat in (FLIP, LITTLE)),
            ],
            "radius-filter kept at least 70.0 % under all 2 attacks; "
            "mean ended at 10.0 % under little-is-enough.",
        ),
        (
            [
                *(run(0.7, threat=threat) for threat in (FLIP, LITTLE, HUDDLE)),
                *(lost(rule=Mean(), threat=threat) for threat in (FLIP, HUDDLE)),
                run(0.5, rule=Mean(), threat=LITTLE),
            ],
            "radius-filter kept at least 70.0 % under all 3 attacks; "
            "mean diverged under huddle and scaled-flip.",
        ),
        (
            [
                *(run(0.7, threat=threat) for threat in (FLIP, LITTLE, HUDDLE, NAN)),
                *(lost(rule=Mean(), threat=threat) for threat in (FLIP, HUDDLE, NAN)),
                run(0.5, rule=Mean(), threat=LITTLE),
            ],
            "radius-filter kept at least 70.0 % under all 4 attacks; "
            "mean diverged under 3 of 4 attacks.",
        ),
        (
            [
                *(run(0.7, threat=threat) for threat in (FLIP, LITTLE)),
                *(lost(rule=Mean(), threat=threat) for threat in (FLIP, LITTLE)),
            ],
            "radius-filter kept at least 70.0 % under all 2 attacks; "
            "mean diverged under all 2 attacks.",
        ),
        ([lost(threat=FLIP)], "radius-filter diverged under scaled-flip."),
        (
            [lost(threat=FLIP), lost(rule=Mean(), threat=FLIP)],
            "All 2 rules diverged under scaled-flip.",
        ),
        (
            [run(0.7, threat=FLIP), run(0.7, rule=Mean(), threat=LITTLE)],
            "No rule has ended under all threats yet.",
        ),
        ([replace(run(), end=None)], "No rule has ended under all threats yet."),
    ],
)
def test_the_verdict_says_who_held_and_who_did_not(runs: list[Summary], verdict: str) -> None:
    assert compared(*runs).verdict() == verdict


def test_every_run_is_in_some_table() -> None:
    runs = [
        run(0.8, threat=FLIP),
        lost(rule=Mean(), threat=FLIP),
        run(0.7, n_steps=50),
        replace(run(rule=CovarianceFilter()), end=None, evaluations=()),
    ]
    groups = group_runs(runs)
    items = run_items(groups, compared(*runs), collection(*runs))
    tables = [item for item in items if isinstance(item, DataTable)]
    assert [row["rule"] for row in rows_of(tables[-1])].count("radius-filter") == 2
    assert len(tables[-1].rows) == 4
    assert "unfinished, step 40 of 600" in {row["end"] for row in rows_of(tables[-1])}


def test_runs_that_were_tested_at_the_end_only_show_their_loss() -> None:
    ended = run()
    once = replace(ended, evaluations=ended.evaluations[-1:])
    groups = group_runs([once])
    view = run_curves(groups, compared(once), labels_of(once))
    assert view.y == "loss"
    assert run_curves(group_runs([ended]), compared(ended), labels_of(ended)).y == "accuracy"


def worker_run(scheme: object, threat: Threat = Threat(), **settings: Any) -> Summary:  # noqa: B008
    """A run with workers, of whom the first two are bad and rejected, the third is suspect."""
    workers = Workers(scheme=scheme, local_steps=settings.pop("local_steps", None))  # type: ignore[arg-type]
    optimizer = Sgd(lr=0.05)
    made = run(workers=workers, threat=threat, n_rows=20, optimizer=optimizer, **settings)
    bad = ((0, 1),) * 3 if threat.attack else ((),) * 3
    rows = replace(made.rows, bad=bad, rejected=((0, 1), (0, 1, 4), (0,)))
    series = {**made.series, "n_bytes": (1234.0,) * 40, "n_rejected": (2.5,) * 40}
    return replace(made, rows=rows, series=series, suspects=(2,))


def test_workers_are_named_by_their_scheme_and_say_what_they_sent() -> None:
    attacked = replace(FLIP, adversaries=ALWAYS)
    rule = parse_rule("blockwise(tile=64) | geometric-median")
    runs = [
        worker_run(Exchange(), attacked, **rule, local_steps=4),
        worker_run(Exchange(send=0.05), **parse_rule("mean")),
        worker_run(SendEverything(), **parse_rule("mean")),
    ]
    groups = group_runs(runs)
    found = {
        row["rule"]: row for row in rows_of(worker_table(groups, compared(*runs), labels_of(*runs)))
    }
    assert found.keys() == {"exchange(send=0.02)", "exchange(send=0.05) + mean", "mean"}
    assert found["exchange(send=0.02)"] == {
        "rule": "exchange(send=0.02)",
        "threat": "scaled-flip",
        "local steps": "4",
        "bytes per worker and round": "1,234",
        "really bad": "0, 1",
    }
    shown = rows_of(worker_table(groups[:1], compared(*runs), labels_of(*runs)))
    assert shown[0]["bytes per worker and round"] == "1,234"
    assert "20 workers" in about(*runs)


def test_what_is_the_same_for_all_workers_is_not_repeated() -> None:
    one = worker_run(SendEverything())
    other = replace(worker_run(SendEverything(), rule=Mean()), suspects=())
    runs = [one, other]
    found = rows_of(worker_table(group_runs(runs), compared(*runs), labels_of(*runs)))
    assert sorted(row["suspects at the end"] for row in found) == ["2", "none"]
    assert "rejected in most rounds" not in found[0]


def test_weights_that_are_not_shown_are_said_to_be_in_the_table() -> None:
    attacked = replace(FLIP, adversaries=ALWAYS)
    rules = [Mean(), GeometricMedian(), CovarianceFilter(), *(Krum(n_bad=n) for n in (1, 2, 3, 4))]
    runs = [weighted_run(rule, attacked) for rule in rules]

    def note(some: list[Summary]) -> str:
        items = run_items(group_runs(some), compared(*some), collection(*some))
        (found,) = [one for one in items if isinstance(one, Chart) and one.kind == "row-weights"]
        return found.note

    words = 'Shown are the first 6 of 7 combinations of rule and attack; the table "All runs" has'
    assert words in note(runs)
    assert "Shown are" not in note(runs[:6])


def weighted_run(rule: Aggregator, threat: Threat) -> Summary:
    """A run with workers that has recorded the weights of rows at many steps."""
    made = worker_run(SendEverything(), threat, rule=rule)
    n = MIN_STEPS
    rows = replace(
        made.rows,
        step=tuple(range(1, n + 1)),
        weights=((0.05,) * 20,) * n,
        bad=((0, 1),) * n,
        rejected=((),) * n,
    )
    return replace(made, rows=rows)


def test_losses_of_a_run_that_diverges_do_not_flatten_the_others() -> None:
    good, bad = run(threat=FLIP), lost(rule=Mean(), threat=FLIP)
    good = replace(good, evaluations=good.evaluations[-1:])
    bad = replace(bad, series={"step": (1,), "loss": (1e30,)})
    view = run_curves(group_runs([good, bad]), compared(good, bad), labels_of(good, bad))
    drawn: Chart = chart(view, collection(good, bad))
    (panel,) = drawn.panels
    assert isinstance(panel, LinePanel)
    tops = {trace.label: max(spot.y for spot in trace.spots) for trace in panel.traces}
    assert tops == {"radius-filter": 2.0, "mean": 3.0}
    assert any("at the top" in remark for remark in drawn.remarks)
    assert {trace.label: [s.says for s in trace.spots] for trace in panel.traces}["mean"] == [
        "1e+30"
    ]


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
