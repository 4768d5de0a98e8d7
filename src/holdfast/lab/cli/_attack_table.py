"""The table of `holdfast attack`."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.lab.cli._summary import percent
from holdfast.lab.records import Record

Records = dict[tuple[str, str | None], Record]
"""By rule or scheme, and by attack, None for the run without one."""

BYTES, TIME = "bytes per worker", "time per step"


def attack_table(
    methods: Sequence[str], attacks: Sequence[str], records: Records, console: Console
) -> tuple[Table, list[str]]:
    """Return a table that fits the console, and the names of columns that were left out for it.

    Names of rules and attacks stay whole as long as they can: first the other headers are broken
    and columns move together, then columns about cost are left out, the last one first.
    """
    # A worker sends the same number of bytes in every round, up to the widths of tiles.
    has_workers = any(record.bytes_per_round for record in records.values())
    costs = [BYTES, TIME] if has_workers else [TIME]
    unlimited = console.options.update(width=10_000)
    table, kept = _table(methods, attacks, records, costs, is_narrow=False), costs
    narrower = (costs[:n] for n in range(len(costs), -1, -1))
    while console.measure(table, options=unlimited).maximum > console.width:
        following = next(narrower, None)
        if following is None:
            break
        kept = following
        table = _table(methods, attacks, records, kept, is_narrow=True)
    return table, costs[len(kept) :]


def _table(
    methods: Sequence[str],
    attacks: Sequence[str],
    records: Records,
    costs: Sequence[str],
    *,
    is_narrow: bool,
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0) if is_narrow else (0, 1))
    table.add_column("rule", style="cyan", overflow="fold")
    for name in ("clean", *attacks):
        table.add_column(name, justify="right", overflow="fold")
    for name in costs:
        table.add_column(name.replace(" ", "\n") if is_narrow else name, justify="right")
    for method in methods:
        accuracies = [_accuracy(records.get((method, attack))) for attack in (None, *attacks)]
        clean = records.get((method, None))
        table.add_row(Text(method), *accuracies, *(_cost(clean, name) for name in costs))
    return table


def _accuracy(record: Record | None) -> Text:
    if record is None or record.end is None:
        return Text("...", style="dim")
    if record.end["end"] == "diverged":
        return Text("diverged", style="red")
    return Text(percent(record.accuracy))


def _cost(clean: Record | None, name: str) -> Text:
    if clean is None:
        return Text("...", style="dim" if name == TIME else "")
    if name == BYTES:
        return Text(f"{clean.bytes_per_round or 0:,.0f}")
    return Text(f"{1000 * seconds_of(clean):.0f} ms", style="dim")


def seconds_of(record: Record) -> float:
    """Return the mean time of a step without evaluations."""
    parts = record.seconds_per_step() if record.entries else {}
    return sum(seconds for part, seconds in parts.items() if part != "evaluation")
