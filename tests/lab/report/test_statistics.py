"""Means, ranges and the words for missing ones."""

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.lab.records import Summary
from holdfast.lab.report._accuracy_table import grid
from holdfast.lab.report._outcome import Outcome, outcome
from holdfast.lab.report.figures import AccuracyTable, PaperCell, TableRow
from tests.lab.report.samples import collection, summary


def test_texts_of_outcomes() -> None:
    cases = [
        (Outcome(n_wanted=3), "not run"),
        (Outcome(n_wanted=1, values=(88.04,)), "88.0"),
        (Outcome(n_wanted=3, values=(86.0, 88.0, 90.0)), "88.0 (86.0 to 90.0)"),
        (Outcome(n_wanted=3, values=(88.0,)), "88.0 (1 of 3 seeds)"),
        (Outcome(n_wanted=3, values=(88.0, 88.0)), "88.0 (88.0 to 88.0, 2 of 3 seeds)"),
        (Outcome(n_wanted=3, n_diverged=3), "diverged"),
        (Outcome(n_wanted=3, n_diverged=1), "diverged (1 of 3 seeds)"),
        (
            Outcome(n_wanted=3, values=(88.0, 89.0), n_diverged=1),
            "1 of 3 diverged (others 88.0 to 89.0)",
        ),
        (
            Outcome(n_wanted=3, values=(88.01, 88.04), n_diverged=1),
            "1 of 3 diverged (others 88.0 to 88.0)",
        ),
        (
            Outcome(n_wanted=3, values=(88.0,), n_diverged=1),
            "1 of 2 diverged (others 88.0, 2 of 3 seeds)",
        ),
        (Outcome(n_wanted=1, unfinished="unfinished, step 3 of 9"), "unfinished, step 3 of 9"),
        (
            Outcome(n_wanted=2, values=(88.0,), unfinished="unfinished, step 3 of 9"),
            "88.0 (1 of 2 seeds)",
        ),
    ]
    for result, words in cases:
        assert result.words() == words, result


@given(st.lists(st.floats(0, 100), min_size=2, max_size=8))
def test_mean_lies_in_the_range(values: list[float]) -> None:
    result = Outcome(n_wanted=len(values), values=tuple(values))
    assert result.mean == pytest.approx(fmean(values))
    assert result.range == (min(values), max(values))


def test_survivors_of_a_divergence_have_no_mean() -> None:
    result = Outcome(n_wanted=3, values=(88.0, 89.0), n_diverged=1)
    assert (result.mean, result.range) == (None, None)


def accuracy(run: Summary) -> float | None:
    return run.accuracy


def test_unfinished_runs_count_in_no_mean() -> None:
    done, going = summary(0.8), summary(0.1, seed=1, end=None, n_steps=20)
    result = outcome(collection(done, going), (done.hash, going.hash), accuracy)
    assert (result.values, result.unfinished) == ((0.8,), "unfinished, step 20 of 40")


def test_best_of_a_line_is_what_reads_greatest_and_ties_are_shared() -> None:
    ours = [summary(value, seed=i) for i, value in enumerate((0.88001, 0.88004, 0.5, 0.99))]
    lost = summary(0.99, seed=9, end="diverged")
    row = TableRow(
        group="",
        label="Clean",
        runs=tuple((run.hash,) for run in (*ours[:3], lost)),
        paper=(
            None,
            PaperCell(mean=None),
            PaperCell(mean=88.42, interval=0.16),
            PaperCell(mean=99.0),
        ),
    )
    table = grid(
        AccuracyTable(title="T", columns=("a", "b", "c", "d"), rows=(row,)), collection(*ours, lost)
    )
    ((_, ((_, cells),)),) = table.groups
    assert [cell.is_best for cell in cells] == [True, True, False, False]
    assert [cell.paper for cell in cells] == [None, "—", "88.42 ± 0.16", "99.00"]
    assert [has_paper for _, has_paper in table.columns] == [False, True, True, True]


def test_a_line_that_is_not_all_run_has_no_best() -> None:
    run = summary()
    row = TableRow(group="", label="Clean", runs=((run.hash,), ("0" * 64,)), paper=(None, None))
    table = grid(AccuracyTable(title="T", columns=("a", "b"), rows=(row,)), collection(run))
    assert [cell.is_best for cell in table.groups[0][1][0][1]] == [False, False]


def test_a_line_with_seeds_to_come_has_no_best() -> None:
    first, second = summary(0.9), summary(0.8, seed=1)
    row = TableRow(
        group="", label="Clean", runs=((first.hash, "0" * 64), (second.hash,)), paper=(None, None)
    )
    table = grid(
        AccuracyTable(title="T", columns=("a", "b"), rows=(row,)), collection(first, second)
    )
    assert [cell.words for cell in table.groups[0][1][0][1]] == ["90.0 (1 of 2 seeds)", "80.0"]
    assert not any(cell.is_best for cell in table.groups[0][1][0][1])


def test_a_line_without_any_mean_has_no_best() -> None:
    row = TableRow(group="", label="Clean", runs=((), ()), paper=(None, None))
    table = grid(AccuracyTable(title="T", columns=("a", "b"), rows=(row,)), collection(summary()))
    assert not any(cell.is_best for cell in table.groups[0][1][0][1])
