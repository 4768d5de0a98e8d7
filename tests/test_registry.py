"""Names of rules: parsing, formatting, JSON, and errors that help."""

from typing import Any

import pytest

from holdfast.aggregators import (
    GeometricMedian,
    Krum,
    MajorityVote,
    Mean,
    NearestNeighborMixing,
    NormClipping,
    NormFilter,
    rules,
)
from holdfast.errors import UnknownNameError


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mean", Mean()),
        ("  krum( n_bad = 2 ) ", Krum(n_bad=2)),
        ("krum(bad_fraction=0.2)", Krum(bad_fraction=0.2)),
        ("norm-filter(n_bad=none, bad_fraction=0.25)", NormFilter(bad_fraction=0.25)),
        ("geometric-median(tolerance=1e-3)", GeometricMedian(tolerance=1e-3)),
        (
            "mixing(n_bad=3) | geometric-median",
            NearestNeighborMixing(n_bad=3, rule=GeometricMedian()),
        ),
        (
            "clipping(radius=2.0)|mixing(n_bad=1)|krum(n_bad=1)",
            NormClipping(radius=2.0, rule=NearestNeighborMixing(n_bad=1, rule=Krum(n_bad=1))),
        ),
    ],
)
def test_parsing(text: str, rule: Any) -> None:
    assert rules.parse(text) == rule
    assert rules.parse(rules.format(rule)) == rule


def test_defaults_are_left_out() -> None:
    mixed = NearestNeighborMixing(n_bad=3, rule=GeometricMedian())
    assert rules.format(mixed) == "mixing(n_bad=3) | geometric-median"
    assert rules.format(Krum(bad_fraction=0.2)) == "krum(bad_fraction=0.2)"
    assert rules.format(MajorityVote(group_size=3)) == "majority-vote(group_size=3)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("krum", r"`krum` must be given n_bad or bad_fraction, as in 'krum\(n_bad=\.\.\.\)'\."),
        ("krum(n_bad=none)", r"`krum` must be given n_bad or bad_fraction"),
        ("clipping | mean", r"`clipping` must be given radius or n_bad or bad_fraction, as in"),
        ("majority-vote", r"`majority-vote` must be given group_size, as in 'majority-vote\("),
        ("krum(n_bad=2, bad_fraction=0.1)", r"one of `n_bad` and `bad_fraction` must be given"),
        (
            "krum(2)",
            r"`krum` must have arguments of the form name=value, got \(2\); values are numbers",
        ),
        ("krum(n_bad=2)(3)", r"`krum` must have arguments of the form name=value"),
        ("krum(n_bad=__import__('os'))", r"`krum` must have arguments of the form name=value"),
        ("krum(**{'n_bad': 2})", r"`krum` must have arguments of the form name=value"),
        ("krum(n_bad=1, n_bad=2)", r"`krum` must have arguments of the form name=value"),
        ("krum(name='mean')", r"`krum` must be given only its own arguments, got 'name'"),
        (
            "mixing(n_bad=1, rule={'name': 'mean'}) | mean",
            r"`mixing` must be given only its own arguments, got 'rule'",
        ),
        ("krum(n_bad={[]: 1})", r"`krum` must have arguments of the form name=value"),
        (
            "krum(n_bad=" + "-" * 100_000 + "1)",
            r"`krum` must have arguments of the form name=value",
        ),
        ("mixing(n_bad=1) | " * 30 + "mean", r"`rule` must have at most 20 stages, got 31\."),
        (
            "krum(n_byz=2)",
            r"`krum` must be given only n_bad, bad_fraction, relaxed, got 'n_byz' \(did",
        ),
        ("mean(x=1)", r"`mean` must be given no arguments, got 'x'\."),
        ("krum(n_bad=-1)", r"`n_bad` must be a whole number of at least 0, got -1\."),
        (
            "mixing(n_bad=3)",
            r"`mixing` must be followed by the rule it wraps, as in 'mixing\(\.\.\.\) \| rule'\.",
        ),
        ("mean | krum(n_bad=1)", r"`mean` must stand last, because it wraps no rule\."),
        ("", r"`rule` must have the form 'name\(argument=value\) \| name', got ''\."),
        ("krum(n_bad=2", r"`rule` must have the form"),
        ("mixing(n_bad=3) |", r"`rule` must have the form"),
    ],
)
def test_errors_say_what_to_do(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rules.parse(text)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"one of blockwise, bucketing, .*zeno, got 'krumm' \(did you mean 'krum'\?\)\.",
    ):
        rules.parse("krumm(n_bad=2)")
    with pytest.raises(UnknownNameError, match=r"got 'x'\."):
        rules.from_json({"name": "x"})


def test_json_has_every_field() -> None:
    expected = {"name": "krum", "n_bad": None, "bad_fraction": 0.2, "relaxed": False}
    assert rules.to_json(Krum(bad_fraction=0.2)) == expected


@pytest.mark.parametrize(
    "data", [3, None, "krum", [], {"n_bad": 2}, {"name": 3}, {"name": ["krum"]}]
)
def test_json_of_a_wrong_kind(data: Any) -> None:
    with pytest.raises(ValueError, match=r"`rule` must be a mapping with a 'name'"):
        rules.from_json(data)
    if not isinstance(data, str):
        with pytest.raises(ValueError, match=r"`rule` must be a name like"):
            rules.parse(data)


def test_objects_of_a_wrong_kind() -> None:
    for wrong in (3, Krum):
        with pytest.raises(ValueError, match=r"`rule` must be an object of a registered class"):
            rules.format(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"`rule` must be an object of a registered class"):
            rules.to_json(wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError):
        rules[3]  # type: ignore[index]
