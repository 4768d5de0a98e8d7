"""Tables 2, 3 and 4: final accuracy of every method under every threat."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from holdfast.lab.config import Config, Threat, hash_of
from holdfast.lab.paper._corruptions import (
    ADDITIVE,
    BACKDOOR,
    BIT_FLIP,
    CLEAN,
    FEATURE_NOISE,
    GROUPS,
    IMPULSE,
    threat,
    who_is_bad,
)
from holdfast.lab.paper._methods import (
    BGMD,
    FILTERED,
    GMD,
    PAPER_COLUMN,
    RULES,
    methods,
    rule_parts,
)
from holdfast.lab.paper._paper_cells import PAPER_CELLS
from holdfast.lab.paper._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.paper._settings import cifar10, describe, fashion_mnist, mnist
from holdfast.lab.records.views import (
    AccuracyTable,
    CurvePanel,
    Curves,
    Line,
    PaperCell,
    Point,
    PointLine,
    PointPanel,
    Points,
    RowPanel,
    RowWeights,
    TableRow,
    TimeSplit,
    View,
)

SHARES = (0.2, 0.4)
TABLE_2 = (BIT_FLIP, ADDITIVE, FEATURE_NOISE, IMPULSE, BACKDOOR)
TABLES_3_AND_4 = (BIT_FLIP, ADDITIVE)
CLEAN_ROW = "Clean"

Cells = dict[tuple[str, float, str], tuple[Config, ...]]
"""Threat, share and method to the runs, one per seed."""


def table2(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Fashion-MNIST, five threats."""
    return _table(
        "table2", "Table 2: Fashion-MNIST, i.i.d.", fashion_mnist, TABLE_2, variant, size, seeds
    )


def table3(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """MNIST, two attacks on gradients."""
    return _table("table3", "Table 3: MNIST, i.i.d.", mnist, TABLES_3_AND_4, variant, size, seeds)


def table4(variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """CIFAR-10 among clients, two attacks on gradients; as published the noise has deviation 100."""
    deviation = 10.0 if variant == "paper" else 100.0
    title = "Table 4: CIFAR-10, federated" + (", clients that differ" if variant == "paper" else "")
    return _table(
        "table4", title, cifar10, TABLES_3_AND_4, variant, size, seeds, deviation=deviation
    )


def with_method(base: Config, method: str, seed: int, what: Threat = CLEAN) -> Config:
    """The run of a method under a threat."""
    return replace(
        base, **rule_parts(RULES[method], base.optimizer, base.schedule), threat=what, seed=seed
    )


def hashes(configs: Sequence[Config]) -> tuple[str, ...]:
    """By which a view refers to runs."""
    return tuple(map(hash_of, configs))


def _table(
    name: str,
    title: str,
    setting: Callable[[Variant, Size], Config],
    threats: Sequence[str],
    variant: Variant,
    size: Size,
    seeds: Seeds,
    *,
    deviation: float = 10.0,
) -> Plan:
    base = setting(variant, size)
    cells: Cells = {}
    keys = [(CLEAN_ROW, 0.0), *((what, share) for what in threats for share in SHARES)]
    for what, share in keys:
        for method in methods(variant):
            one = partial(
                with_method, base, method, what=threat(what, share, variant, deviation=deviation)
            )
            cells[what, share, method] = tuple(one(seed=seed) for seed in seeds)
    shorter = f"After {base.n_steps:,} steps of {base.model}, not after the paper's training: to be compared along a line."
    return Plan(
        title=title,
        about=f"{describe(base)} {who_is_bad(threats, SHARES, base.n_rows, variant)}",
        configs=tuple(_in_order(cells, keys, variant, len(seeds))),
        views=_views(name, "" if size == "full" else shorter, cells, keys, methods(variant)),
    )


def _in_order(
    cells: Cells, keys: list[tuple[str, float]], variant: Variant, n_seeds: int
) -> Iterator[Config]:
    """One seed everywhere, then the others line by line, clean and gradient attacks before the rest; last, in the same order, what the paper does not have."""
    first = [method for method in methods(variant) if method != FILTERED]
    urgent = [key for key in keys if GROUPS.get(key[0], "") in ("", "Gradient attack")]
    others = [key for key in keys if key not in urgent]
    for some, seeds, columns in (
        (keys, range(1), first),
        (urgent + others, range(1, n_seeds), first),
        (keys, range(1), [FILTERED]),
        (urgent + others, range(1, n_seeds), [FILTERED]),
    ):
        yield from (
            cells[what, share, method][i]
            for what, share in some
            for i in seeds
            for method in columns
        )


def _views(
    name: str, note: str, cells: Cells, keys: list[tuple[str, float]], columns: list[str]
) -> tuple[View, ...]:
    rows = tuple(
        TableRow(
            group=GROUPS.get(what, ""),
            label=_label(what, share),
            runs=tuple(hashes(cells[what, share, method]) for method in columns),
            paper=tuple(_paper_cell(name, what, share, method) for method in columns),
        )
        for what, share in keys
    )
    threats = list(dict.fromkeys(what for what, _ in keys if what != CLEAN_ROW))
    worst = [(CLEAN_ROW, 0.0), *((what, SHARES[-1]) for what in threats)]
    own_median = next(method for method in columns if method in PAPER_COLUMN)
    return (
        AccuracyTable(
            title="Test accuracy in percent", note=note, columns=tuple(columns), rows=rows
        ),
        Curves(
            title="Test accuracy over the steps",
            x="step",
            y="accuracy",
            panels=tuple(
                CurvePanel(
                    title=_label(what, share),
                    lines=tuple(
                        Line(label=method, runs=hashes(cells[what, share, method]))
                        for method in columns
                    ),
                )
                for what, share in worst
            ),
        ),
        Points(
            title="Breakdown: final accuracy over the corrupted share",
            x_label="corrupted share",
            y="accuracy",
            panels=tuple(_breakdown(cells, what, columns) for what in threats),
        ),
        RowWeights(
            title="Who was bad, and whom the rule believed",
            note="One line per row of the step. A dot marks a bad row; a rule that resists gives it no weight, and so no colour.",
            panels=tuple(
                RowPanel(
                    title=f"{_label(what, SHARES[-1])}, {method}",
                    run=hashes(cells[what, SHARES[-1], method])[0],
                )
                for what in threats
                if GROUPS[what] == "Gradient attack"
                for method in (GMD, BGMD, own_median)
            ),
        ),
        TimeSplit(
            title="What a step spends its time on, without corruption",
            lines=tuple(
                Line(label=method, runs=hashes(cells[CLEAN_ROW, 0.0, method])) for method in columns
            ),
        ),
    )


def _breakdown(cells: Cells, what: str, columns: list[str]) -> PointPanel:
    places = [(CLEAN_ROW, 0.0), *((what, share) for share in SHARES)]
    return PointPanel(
        title=what,
        lines=tuple(
            PointLine(
                label=method,
                points=tuple(Point(x=key[1], runs=hashes(cells[*key, method])) for key in places),
            )
            for method in columns
        ),
    )


def _label(what: str, share: float) -> str:
    return f"{what}, {share:.0%}" if share else what


def _paper_cell(name: str, what: str, share: float, method: str) -> PaperCell | None:
    found = PAPER_CELLS[name][what, share].get(PAPER_COLUMN.get(method, method), "no such column")
    if isinstance(found, str):
        return None
    return PaperCell(mean=None) if found is None else PaperCell(mean=found[0], interval=found[1])


SEEDS: dict[Size, int] = {"smoke": 1, "quick": 3, "full": 5}

TABLES = (
    Recipe(
        name="table2", title="Fashion-MNIST, five threats, every method", n_seeds=SEEDS, plan=table2
    ),
    Recipe(
        name="table3",
        title="MNIST, two attacks on gradients, every method",
        n_seeds=SEEDS,
        plan=table3,
    ),
    Recipe(
        name="table4",
        title="CIFAR-10 among clients that differ, two attacks, every method",
        n_seeds=SEEDS,
        plan=table4,
    ),
)
