"""Sections of a report for the studies of the paper's experiments."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

from holdfast.lab.paper import _comparison as compared
from holdfast.lab.records import Labels, Study
from holdfast.lab.report import Collection, Section, figures, study_section
from holdfast.lab.report.figures import Lines, MeasuredValue, PaperCell, Runs, View

Labeled = Mapping[str, Labels]
"""Labels of runs or measurements by their hashes."""

Views = tuple[View, ...]

LogPanel = partial(figures.MeasuredPanel, x_scale="log", y_scale="log")

WEIGHED = (compared.GMD, compared.BGMD, compared.ALGORITHM_1, compared.PUBLISHED)
"""Methods whose weights of rows are shown."""


def sections(collection: Collection, notes: Mapping[str, str]) -> tuple[list[Section], list[str]]:
    """Draw the studies of a collection.

    Args:
        collection: studies, runs and measurements.
        notes: how to read the results of a study, by its name.

    Returns:
        The sections, and a sentence for each study that cannot be drawn.
    """
    made: list[Section] = []
    problems: list[str] = []
    for study in collection.studies:
        try:
            views = VIEWS[study.recipe](study)
        except (LookupError, TypeError, ValueError) as error:
            reason = f"its labels do not fit its recipe ({type(error).__name__}: {error})"
            if study.recipe not in VIEWS:
                reason = f"this release has no recipe {study.recipe!r}"
            shown = "its runs are shown as other runs"
            shown += " and its measurements are left out" if study.measurements else ""
            problems.append(f"The study {study.name} is not shown, because {reason}; {shown}.")
        else:
            note = notes.get(study.name, "")
            made.append(study_section(study, views, collection, note, _meanings(study)))
    return made, problems


def _meanings(study: Study) -> dict[str, str]:
    """Return what the methods of a study stand for, by their names."""
    used = {own.get("method") for own in (*study.runs.values(), *study.measurements.values())}
    return {name: text for name, text in compared.MEANINGS.items() if name in used}


def _table(study: Study) -> Views:
    """Tables 2 to 4."""
    runs, methods = study.runs, _texts(study.runs, "method")
    keys = [*dict.fromkeys((str(own["threat"]), float(own["share"])) for own in runs.values())]
    titles = {key: f"{key[0]}, {key[1]:.0%}" if key[1] else key[0] for key in keys}
    lines = {key: _by_method(runs, threat=key[0], share=key[1]) for key in keys}
    paper = {
        (own["threat"], own["share"], own["method"]): PaperCell(own["mean"], own["interval"])
        for own in study.paper
    }
    rows = tuple(
        figures.TableRow(
            group=compared.GROUPS.get(key[0], ""),
            label=titles[key],
            runs=tuple(lines[key].values()),
            paper=tuple(paper.get((*key, method)) for method in methods),
        )
        for key in keys
    )
    worst = max(_numbers(runs, "share"))
    weights = {
        f"{titles[key]}, {method}": some[0]
        for key in keys
        if key[1] == worst and compared.GROUPS.get(key[0]) == compared.GRADIENT_ATTACK
        for method, some in lines[key].items()
        if method in WEIGHED and some
    }
    curves = {titles[key]: lines[key] for key in keys if key[1] in (0, worst)}
    title = "Test accuracy in percent"
    return (
        figures.AccuracyTable(title=title, note=study.note, columns=tuple(methods), rows=rows),
        _curves("Test accuracy over the steps", curves),
        _breakdown(runs),
        figures.RowWeights(
            title="Weight given to each row",
            note="One line per row of the step. A dot marks a bad row; "
            "a rule that resists gives it no weight, and so no color.",
            panels=weights,
        ),
        figures.TimeSplit(
            title="Parts of the time per step, without corruption",
            lines=_by_method(runs, share=0.0),
        ),
    )


def _wall_clock(study: Study) -> Views:
    """Accuracy against time under one threat."""
    runs, shares = study.runs, _numbers(study.runs, "share")
    panels = {
        f"{share:.0%} corruption" if share else "No corruption": _by_method(runs, share=share)
        for share in shares
    }
    return (
        figures.Curves(
            title="Test accuracy over training time",
            note="Time is the number of steps times the time per step, which is the sum of the "
            "medians of its parts without evaluations and without the attack.",
            x="seconds",
            y="accuracy",
            panels=panels,
        ),
        _curves("Test accuracy over the steps", panels),
        _breakdown(runs),
        figures.TimeSplit(
            title=f"Parts of the time per step, at {100 * max(shares):.0f} %",
            lines=_by_method(runs, share=max(shares)),
        ),
    )


def _breakdown(runs: Labeled) -> View:
    """Final accuracy over the share, beginning with the clean runs."""
    panels: dict[str, dict[str, dict[float, Runs]]] = {}
    for threat, method in product(_texts(runs, "threat"), _texts(runs, "method")):
        if threat != compared.CLEAN_ROW:
            own = {
                key: labels
                for key, labels in runs.items()
                if labels["threat"] in (threat, compared.CLEAN_ROW)
            }
            shares = _numbers(own, "share")
            points = {share: _cell(own, share=share, method=method) for share in shares}
            panels.setdefault(threat, {})[method] = points
    title = "Breakdown: final accuracy over the corrupted share"
    return figures.Points(title=title, x_label="corrupted share", y="accuracy", panels=panels)


def _choice_of_k(study: Study) -> Views:
    """Accuracy over k, with the memory and without."""
    runs, fractions = study.runs, _numbers(study.runs, "fraction")
    points: dict[str, dict[str, dict[float, Runs]]] = {}
    curves = {}
    for method, memory in dict.fromkeys((own["method"], own["memory"]) for own in runs.values()):
        own = {k: _cell(runs, method=method, memory=memory, fraction=k) for k in fractions}
        points.setdefault(method, {})[memory] = own
        curves[f"{method}, {memory}"] = _by_fraction(runs, method=method, memory=memory)
    title = "Final accuracy over the size of the block"
    return (
        figures.Points(title=title, x_label="k / d", x_scale="log", y="accuracy", panels=points),
        _curves("Test accuracy over the steps", curves),
    )


def _residual(study: Study) -> Views:
    """Relative residual, accuracy and loss over the steps, a line for each k."""
    methods = _texts(study.runs, "method")
    panels = {method: _by_fraction(study.runs, method=method) for method in methods}
    return (
        _curves("Relative residual, 1 - ξ", panels, "residual"),
        _curves("Test accuracy", panels),
        _curves("Training loss", panels, "loss"),
    )


def _toy(study: Study) -> Views:
    """Points in the plane, and the errors of three rules."""
    found = study.measurements
    clouds = {
        f"{share:.0%} corruption" if share else "Clean data": _cell(found, share=share)[0]
        for share in _numbers(found, "share")
    }
    rules = ("mean", "coordinate median", "geometric median")
    errors = {
        title: tuple(MeasuredValue(key, f"errors.{rule}") for rule in rules)
        for title, key in clouds.items()
    }
    title = "Root mean square distance from the true center"
    return (
        figures.Scatter(title="Where each rule puts the center", panels=clouds),
        figures.ValueTable(title=title, columns=rules, rows=errors),
    )


def _images(study: Study) -> Views:
    (key,) = study.measurements
    return (figures.Pictures(title="The same images under every corruption", measurement=key),)


def _table1(study: Study) -> Views:
    """Times over n and d, and breakdown points."""
    times = {key: own for key, own in study.measurements.items() if "n" in own}
    # One n has times for several d, and one d for several n.
    (n, _), (d, _) = (
        Counter(own[name] for own in times.values()).most_common(1)[0] for name in ("n", "d")
    )
    over_n = {key: own for key, own in times.items() if own["d"] == d}
    over_d = {key: own for key, own in times.items() if own["n"] == n}
    widths = sorted(_numbers(over_d, "d"))
    means = {
        method: tuple(
            MeasuredValue(_cell(over_d, method=method, d=width)[0], "means") for width in widths
        )
        for method in _texts(times, "method")
    }
    paper = {own["method"]: str(own["breakdown"]) for own in study.paper}
    points = {
        str(own["method"]): (MeasuredValue(key, "breakdown"), paper.get(own["method"], ""))
        for key, own in study.measurements.items()
        if key not in times
    }
    return (
        figures.Measured(
            title="Time per step",
            note="The number after a name is the fitted exponent; "
            "1 is linear, as expected of all of them in d.",
            panels=(
                _times(f"over n, at d = {d:,}", "rows n", over_n, "n"),
                _times(f"over d, at n = {n}", "columns d", over_d, "d"),
            ),
        ),
        figures.ValueTable(
            title="Time per step, relative to the mean of the same rows",
            columns=tuple(f"{n} x {width:,.0f}" for width in widths),
            rows=means,
        ),
        figures.ValueTable(
            title="The smallest share of bad rows that breaks the rule under one attack",
            note="Bad rows are one hundred million deviations away, all at one place, and redrawn "
            "for ten steps. Another attack may break a rule with fewer.",
            columns=("measured", "the paper"),
            rows=points,
        ),
    )


def _speed_up(study: Study) -> Views:
    """Speed-up over k by two solvers."""
    found = {float(own["fraction"]): key for key, own in study.measurements.items()}
    solvers = {"Weiszfeld on rows (Lemma 2)": "weiszfeld", "this library's solver": "holdfast"}
    lines = {
        label: {fraction: MeasuredValue(key, solver) for fraction, key in found.items()}
        for label, solver in solvers.items()
    }
    panel = LogPanel(x_label="k / d", y_label="speed-up F", lines=lines)
    return (figures.Measured(title="Speed-up of a block over all columns", panels=(panel,)),)


VIEWS: dict[str, Callable[[Study], Views]] = {
    "table1": _table1,
    **dict.fromkeys(("table2", "table3", "table4"), _table),
    **dict.fromkeys(("feature-corruption", "gradient-corruption", "label-corruption"), _wall_clock),
    "choice-of-k": _choice_of_k,
    **dict.fromkeys(("large-model", "tiny-model"), _residual),
    "toy": _toy,
    "images": _images,
    "speed-up": _speed_up,
}
"""The tables and figures of each recipe."""


def _curves(title: str, panels: Mapping[str, Lines], y: figures.Metric = "accuracy") -> View:
    return figures.Curves(title=title, x="step", y=y, panels=panels)


def _times(title: str, x_label: str, times: Labeled, x: str) -> figures.MeasuredPanel:
    lines: dict[str, dict[float, MeasuredValue]] = {}
    for key, own in times.items():
        lines.setdefault(own["method"], {})[float(own[x])] = MeasuredValue(key, "seconds")
    return LogPanel(title=title, x_label=x_label, y_label="seconds", lines=lines)


def _by_method(runs: Labeled, **labels: str | float) -> Lines:
    return {method: _cell(runs, method=method, **labels) for method in _texts(runs, "method")}


def _by_fraction(runs: Labeled, **labels: str) -> Lines:
    fractions = _numbers(runs, "fraction")
    return {f"k = {k:.0%} of d": _cell(runs, fraction=k, **labels) for k in fractions}


def _cell(labeled: Labeled, **labels: str | float) -> Runs:
    """Return the hashes of all that have these labels."""
    return tuple(key for key, own in labeled.items() if labels.items() <= own.items())


def _texts(labeled: Labeled, name: str) -> list[str]:
    """Return the distinct values of a label in the order in which they appear."""
    return list(dict.fromkeys(str(own[name]) for own in labeled.values()))


def _numbers(labeled: Labeled, name: str) -> list[float]:
    return list(dict.fromkeys(float(own[name]) for own in labeled.values()))
