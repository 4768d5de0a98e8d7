"""Tables and figures of the results without training."""

from collections import Counter

from holdfast.lab.paper._labels import Labeled, cell, numbers, texts
from holdfast.lab.records import Study
from holdfast.lab.report.figures import (
    Measured,
    MeasuredPanel,
    MeasuredValue,
    Pictures,
    Scatter,
    ValueTable,
    View,
)

Views = tuple[View, ...]

TOY_RULES = ("mean", "coordinate median", "geometric median")


def toy(study: Study) -> Views:
    """Show points in the plane and the errors of three rules."""
    found = study.measurements
    clouds = {
        f"{share:.0%} corruption" if share else "Clean data": cell(found, share=share)[0]
        for share in numbers(found, "share")
    }
    return (
        Scatter(title="Where each rule puts the centre", panels=clouds),
        ValueTable(
            title="Root mean square distance from the true centre",
            columns=TOY_RULES,
            rows={
                title: tuple(_value(key, f"errors.{rule}") for rule in TOY_RULES)
                for title, key in clouds.items()
            },
        ),
    )


def images(study: Study) -> Views:
    """Show images under every corruption."""
    (key,) = study.measurements
    return (Pictures(title="The same images under every corruption", measurement=key),)


def table1(study: Study) -> Views:
    """Show times over n and d, and breakdown points."""
    times = {key: own for key, own in study.measurements.items() if "n" in own}
    points = {key: own for key, own in study.measurements.items() if "n" not in own}
    # One d has times for several n, and one n for several d.
    (fixed_n, _), (fixed_d, _) = (
        Counter(own[name] for own in times.values()).most_common(1)[0] for name in ("n", "d")
    )
    over_n = {key: own for key, own in times.items() if own["d"] == fixed_d}
    over_d = {key: own for key, own in times.items() if own["n"] == fixed_n}
    widths = numbers(over_d, "d")
    paper = {own["method"]: str(own["breakdown"]) for own in study.paper}
    return (
        Measured(
            title="Time of a step",
            note="The number behind a name is the exponent that fits best: "
            "1 is linear, as all of them should be in d.",
            panels=(
                _times(f"over n, at d = {fixed_d:,}", "rows n", over_n, "n"),
                _times(f"over d, at n = {fixed_n}", "columns d", over_d, "d"),
            ),
        ),
        ValueTable(
            title="Time of a step, in means of the same rows",
            columns=tuple(f"{fixed_n} x {d:,.0f}" for d in widths),
            rows={
                method: tuple(_value(cell(over_d, method=method, d=d)[0], "means") for d in widths)
                for method in texts(times, "method")
            },
        ),
        ValueTable(
            title="The smallest share of bad rows that breaks the rule under one attack",
            note="Bad rows are one hundred million deviations away, all at one place, and redrawn "
            "for ten steps. Another attack may break a rule with fewer.",
            columns=("measured", "the paper"),
            rows={
                str(own["method"]): (_value(key, "breakdown"), paper.get(own["method"], ""))
                for key, own in points.items()
            },
        ),
    )


def speed_up(study: Study) -> Views:
    """Show the speed-up over k by two solvers."""
    lines = {"Weiszfeld on rows (Lemma 2)": "weiszfeld", "this library's solver": "holdfast"}
    found = study.measurements
    panel = MeasuredPanel(
        x_label="k / d",
        y_label="speed-up F",
        x_scale="log",
        y_scale="log",
        lines={
            label: {
                k: _value(cell(found, fraction=k)[0], value) for k in numbers(found, "fraction")
            }
            for label, value in lines.items()
        },
    )
    return (Measured(title="Speed-up of a block over all columns", panels=(panel,)),)


def _times(title: str, x_label: str, times: Labeled, x: str) -> MeasuredPanel:
    return MeasuredPanel(
        title=title,
        x_label=x_label,
        y_label="seconds",
        x_scale="log",
        y_scale="log",
        lines={
            method: {
                float(times[key][x]): _value(key, "seconds") for key in cell(times, method=method)
            }
            for method in texts(times, "method")
        },
    )


def _value(key: str, value: str) -> MeasuredValue:
    return MeasuredValue(measurement=key, value=value)
