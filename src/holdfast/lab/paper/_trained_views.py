"""Tables and figures of the experiments with training."""

from itertools import product

from holdfast.lab.paper._comparison import (
    BGMD,
    CLEAN_ROW,
    GMD,
    GRADIENT_ATTACK,
    GROUPS,
    PAPER_COLUMN,
)
from holdfast.lab.paper._labels import Labeled, cell, numbers, texts
from holdfast.lab.records import Study
from holdfast.lab.report.figures import (
    AccuracyTable,
    Curves,
    Lines,
    Metric,
    PaperCell,
    Points,
    RowWeights,
    TableRow,
    TimeSplit,
    View,
)

Views = tuple[View, ...]


def table(study: Study) -> Views:
    """Show final accuracies, curves, breakdown, weights of rows, and times of Tables 2 to 4."""
    runs, methods = study.runs, texts(study.runs, "method")
    keys = [*dict.fromkeys((str(own["threat"]), own["share"]) for own in runs.values())]
    threats = [threat for threat in texts(runs, "threat") if threat != CLEAN_ROW]
    worst = max(numbers(runs, "share"))
    attacks = [threat for threat in threats if GROUPS.get(threat) == GRADIENT_ATTACK]
    shown = [method for method in methods if method in (GMD, BGMD, *PAPER_COLUMN)]
    return (
        AccuracyTable(
            title="Test accuracy in percent",
            note=study.note,
            columns=tuple(methods),
            rows=tuple(_row(study, threat, share) for threat, share in keys),
        ),
        Curves(
            title="Test accuracy over the steps",
            x="step",
            y="accuracy",
            panels={
                _line(threat, share): _by_method(runs, threat=threat, share=share)
                for threat, share in keys
                if share in (0, worst)
            },
        ),
        _breakdown(runs, threats),
        RowWeights(
            title="Weight given to each row",
            note="One line per row of the step. A dot marks a bad row; "
            "a rule that resists gives it no weight, and so no color.",
            panels={
                f"{_line(threat, worst)}, {method}": some[0]
                for threat, method in product(attacks, shown)
                if (some := cell(runs, threat=threat, share=worst, method=method))
            },
        ),
        TimeSplit(
            title="What a step spends its time on, without corruption",
            lines=_by_method(runs, threat=CLEAN_ROW),
        ),
    )


def _row(study: Study, threat: str, share: float) -> TableRow:
    own: dict[str, str | float] = {"threat": threat, "share": share}
    paper = {
        figure["method"]: PaperCell(mean=figure["mean"], interval=figure["interval"])
        for figure in study.paper
        if own.items() <= figure.items()
    }
    lines = _by_method(study.runs, **own)
    return TableRow(
        group=GROUPS.get(threat, ""),
        label=_line(threat, share),
        runs=tuple(lines.values()),
        paper=tuple(map(paper.get, lines)),
    )


def _line(threat: str, share: float) -> str:
    return f"{threat}, {share:.0%}" if share else threat


def wall_clock(study: Study) -> Views:
    """Show accuracy against time under one threat."""
    runs, shares = study.runs, numbers(study.runs, "share")
    panels = {
        f"{share:.0%} corruption" if share else "No corruption": _by_method(runs, share=share)
        for share in shares
    }
    return (
        Curves(
            title="Test accuracy over training time",
            note="Time is the number of steps times what a step takes, which is the sum of the "
            "medians of its parts, without evaluations and without what the attackers do.",
            x="seconds",
            y="accuracy",
            panels=panels,
        ),
        Curves(title="Test accuracy over the steps", x="step", y="accuracy", panels=panels),
        _breakdown(runs, [threat for threat in texts(runs, "threat") if threat != CLEAN_ROW]),
        TimeSplit(
            title=f"What a step spends its time on, at {100 * max(shares):.0f} %",
            lines=_by_method(runs, share=max(shares)),
        ),
    )


def _breakdown(runs: Labeled, threats: list[str]) -> Points:
    """Return final accuracy over the share, beginning with the clean runs."""
    places = {
        threat: {0.0: _by_method(runs, threat=CLEAN_ROW)}
        | {
            share: _by_method(runs, threat=threat, share=share)
            for share in numbers(runs, "share")
            if share
        }
        for threat in threats
    }
    return Points(
        title="Breakdown: final accuracy over the corrupted share",
        x_label="corrupted share",
        y="accuracy",
        panels={
            threat: {
                method: {share: lines[method] for share, lines in by_share.items()}
                for method in texts(runs, "method")
            }
            for threat, by_share in places.items()
        },
    )


def choice_of_k(study: Study) -> Views:
    """Show accuracy over k, with the memory and without."""
    runs, fractions = study.runs, numbers(study.runs, "fraction")
    methods, memories = texts(runs, "method"), texts(runs, "memory")
    points = {
        method: {
            memory: {k: cell(runs, method=method, memory=memory, fraction=k) for k in fractions}
            for memory in memories
        }
        for method in methods
    }
    return (
        Points(
            title="Final accuracy over the size of the block",
            x_label="k / d",
            x_scale="log",
            y="accuracy",
            panels=points,
        ),
        Curves(
            title="Test accuracy over the steps",
            x="step",
            y="accuracy",
            panels={
                f"{method}, {memory}": _by_fraction(runs, method=method, memory=memory)
                for method, memory in product(methods, memories)
            },
        ),
    )


def residual(study: Study) -> Views:
    """Show relative residual, accuracy and loss over the steps, a line for each k."""
    titles: dict[Metric, str] = {
        "residual": "Relative residual, 1 - ξ",
        "accuracy": "Test accuracy",
        "loss": "Training loss",
    }
    panels = {
        method: _by_fraction(study.runs, method=method) for method in texts(study.runs, "method")
    }
    return tuple(Curves(title=titles[y], x="step", y=y, panels=panels) for y in titles)


def _by_method(runs: Labeled, **labels: str | float) -> Lines:
    return {method: cell(runs, method=method, **labels) for method in texts(runs, "method")}


def _by_fraction(runs: Labeled, **labels: str) -> Lines:
    return {
        f"k = {fraction:.0%} of d": cell(runs, fraction=fraction, **labels)
        for fraction in numbers(runs, "fraction")
    }
