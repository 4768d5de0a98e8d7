"""Runs that belong to no study."""

from collections.abc import Sequence, Set

from holdfast.lab.records import Summary
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._rule_names import names_of, share_of
from holdfast.lab.report._words import ending, percent
from holdfast.lab.report.figures import Curves, DataTable, accuracy_in_percent


def other_runs(found: Collection, covered: Set[str]) -> list[Summary]:
    """Runs that are not covered, ordered by their columns in the table."""
    runs = [run for key, run in found.runs.items() if key not in covered]
    table = other_table(runs)
    return [
        run
        for _, run in sorted(
            zip(table.rows, runs, strict=True), key=lambda pair: (pair[0], pair[1].hash)
        )
    ]


def other_table(runs: Sequence[Summary]) -> DataTable:
    """One line per run."""
    columns = ("data", "model", "rule", "threat", "share", "seed", "steps", "accuracy (%)", "end")
    rows = []
    for run, (rule, threat) in zip(runs, names_of([run.config for run in runs]), strict=True):
        data, model, seed = (str(run.config.get(key, "")) for key in ("data", "model", "seed"))
        accuracy = accuracy_in_percent(run)
        shown = "" if accuracy is None or run.has_diverged else percent(accuracy)
        rows.append(
            (
                data,
                model,
                rule,
                threat,
                share_of(run.config),
                seed,
                f"{run.content['n_steps']:,}",
                shown,
                ending(run),
            )
        )
    return DataTable(
        caption="Each run and how it ended",
        columns=columns,
        rows=tuple(rows),
        texts=frozenset({0, 1, 2, 3, 8}),
    )


def other_curves(runs: Sequence[Summary]) -> Curves:
    """A panel per data, model and threat; a line per rule, over its seeds."""
    panels: dict[str, dict[str, list[str]]] = {}
    for run, row in zip(runs, other_table(runs).rows, strict=True):
        data, model, rule, threat, share = row[:5]
        panels.setdefault(
            ", ".join(
                filter(
                    None,
                    (data, model, "no threat" if threat == "none" else f"{threat} {share}".strip()),
                )
            ),
            {},
        ).setdefault(rule, []).append(run.hash)
    return Curves(
        title="Test accuracy over the steps",
        x="step",
        y="accuracy",
        panels={
            title: {rule: tuple(hashes) for rule, hashes in lines.items()}
            for title, lines in panels.items()
        },
    )
