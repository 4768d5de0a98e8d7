"""Several rules, each with and without the attack, in one table."""

from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli._summary import percent
from holdfast.lab.records import Record


@final
class Comparison:
    """What came of the runs so far, by rule.

    Args:
        title: of the whole.
        rules: the rules' names, one line each.
        attack: the attack's name, for its column.
    """

    def __init__(self, title: str, rules: list[str], attack: str) -> None:
        self._title = title
        self._rules = rules
        self._attack = attack
        self.records: dict[tuple[str, bool], Record] = {}

    def show(self) -> Group:
        """The title over a table: accuracy clean and under attack, time of a step, and what weight bad rows had."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("rule", style="cyan")
        for name in ("clean", self._attack, "a step", "bad rows' weight"):
            table.add_column(name, justify="right")
        for rule in self._rules:
            clean, attacked = self.records.get((rule, False)), self.records.get((rule, True))
            table.add_row(
                Text(rule),
                _accuracy(clean),
                _accuracy(attacked),
                _milliseconds(clean),
                _weight(attacked),
            )
        return Group(Text(self._title, style="bold"), table)

    def to_json(self) -> list[dict[str, Any]]:
        """The same as plain values, one mapping per run."""
        return [
            {
                "rule": rule,
                "attacked": is_attacked,
                "end": None if record.end is None else record.end["end"],
                "accuracy": record.accuracy,
                "seconds_per_step": _seconds(record),
                "bad_weight": record.bad_weight,
                "folder": str(record.folder),
            }
            for (rule, is_attacked), record in self.records.items()
        ]


def _accuracy(record: Record | None) -> Text:
    if record is None:
        return Text("...", style="dim")
    if record.end is not None and record.end["end"] == "diverged":
        return Text("diverged", style="red")
    return Text(percent(record.accuracy))


def _weight(record: Record | None) -> Text:
    if record is None:
        return Text("...", style="dim")
    if record.bad_weight is not None:
        return Text(percent(record.bad_weight))
    threat = record.config["threat"]
    return Text(
        "no weights" if threat["attack"] or threat["whole_rows"] else "no bad rows", style="dim"
    )


def _milliseconds(record: Record | None) -> Text:
    return Text("..." if record is None else f"{1000 * _seconds(record):.0f} ms", style="dim")


def _seconds(record: Record) -> float:
    """The mean time of a step, evaluations apart."""
    return sum(
        seconds for part, seconds in record.seconds_per_step().items() if part != "evaluation"
    )
