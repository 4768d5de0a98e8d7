"""Measurements find what is known to be so."""

import base64
import io
import json
import math
from typing import Any

import pytest
import torch
from PIL import Image

from holdfast.aggregators import GeometricMedian
from holdfast.lab.paper import recipes
from holdfast.lab.paper.measurements import (
    BlockSpeedUp,
    BreakdownPoint,
    CorruptedImages,
    Measurement,
    RuleTime,
    ToyMedian,
    measurements,
)
from holdfast.lab.paper.measurements._rules import weiszfeld

SMALL: list[Measurement] = [
    ToyMedian(bad_fraction=0.3, n=20, n_draws=3),
    CorruptedImages(n=1),
    RuleTime(rule="mean", n=3, d=10, n_rounds=1),
    BreakdownPoint(rule="mean", n=5, d=10, n_steps=2),
    BlockSpeedUp(fraction=0.5, n=6, d=64, n_rounds=1),
]


def test_results_are_plain_values_and_descriptions_come_back() -> None:
    assert {one.name for one in SMALL} == set(measurements.names)
    for one in SMALL:
        json.dumps(one.measure(), allow_nan=False)
        assert measurements.from_json(json.loads(json.dumps(measurements.to_json(one)))) == one


def test_without_noise_all_rules_agree_and_with_it_the_geometric_median_is_best() -> None:
    clean, bad = (ToyMedian(bad_fraction=share, n_draws=60).measure() for share in (0.0, 0.45))
    assert clean["bad"] == []
    assert (len(bad["good"]), len(bad["bad"])) == (55, 45)
    assert (
        max(clean["errors"].values()) < 0.25
    )  # 1 / sqrt(100) a coordinate, and the medians' inefficiency
    assert bad["errors"]["geometric median"] < bad["errors"]["mean"] / 2
    assert bad["errors"]["geometric median"] < bad["errors"]["coordinate median"]


def test_points_are_drawn_as_said() -> None:
    drawn = ToyMedian(bad_fraction=0.3, n=1000, n_draws=1).measure()
    good, bad = torch.tensor(drawn["good"]), torch.tensor(drawn["bad"])
    assert torch.allclose(good.std(0), torch.ones(2), atol=0.1)
    assert torch.allclose(good.mean(0), torch.full((2,), 2.0), atol=0.15)
    assert torch.allclose(bad.std(0), torch.full((2,), math.sqrt(101)), rtol=0.1)


def test_breakdown_points_are_those_of_the_theory() -> None:
    """With 11 rows, because rounding decides between two halves of an even number."""
    expected = {
        "mean": 1,
        "coordinate-median": 6,
        "geometric-median": 6,
        "bgmd": 6,
        "bgmd-paper": 1,
        "trimmed-mean(n_bad=3)": 4,
        "covariance-filter": 6,
    }
    found = {rule: BreakdownPoint(rule=rule, n=11, d=100).measure() for rule in expected}
    assert {rule: result["n_broken"] for rule, result in found.items()} == expected
    assert all(result["breakdown"] == result["n_broken"] / 11 for result in found.values())


def test_time_is_measured_against_the_mean() -> None:
    found = RuleTime(rule="geometric-median", n=16, d=20_000).measure()
    assert 0 < found["seconds"] < 10
    assert found["means"] > 1


def test_images_are_what_the_columns_say() -> None:
    found = CorruptedImages(n=3).measure()
    assert found["columns"] == ["Original", "Gaussian noise", "Salt and pepper", "Gaussian blur"]
    assert [row["label"] for row in found["rows"]] == ["T-shirt/top", "Trouser", "Pullover"]
    original, _, impulse, blurred = (pixels(picture) for picture in found["rows"][0]["pictures"])
    assert original.shape == (28, 28)
    assert float(((impulse == 0) | (impulse == 255)).float().mean()) > 0.85
    assert blurred.float().std() < original.float().std()


def pixels(picture: str) -> torch.Tensor:
    image: Any = Image.open(io.BytesIO(base64.b64decode(picture)))
    return torch.tensor(
        list(
            image.get_flattened_data() if hasattr(image, "get_flattened_data") else image.getdata()
        )
    ).view(image.size[::-1])


def test_the_textbook_s_median_is_a_median() -> None:
    rows = torch.randn(9, 30, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(weiszfeld(rows, 1e-7), GeometricMedian()(rows), atol=1e-3)


def test_what_cannot_be_measured_is_refused() -> None:
    cases: list[tuple[type[Measurement], dict[str, Any], str]] = [
        (ToyMedian, {"bad_fraction": 0.5}, "bad_fraction"),
        (CorruptedImages, {"n": 0}, "`n`"),
        (RuleTime, {"rule": "maen", "n": 3, "d": 3}, "did you mean 'mean'"),
        (BreakdownPoint, {"rule": "mean", "n": 0}, "`n`"),
        (BlockSpeedUp, {"fraction": 0.0}, "fraction"),
    ]
    for kind, arguments, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            kind(**arguments)


def test_smoke_sizes_are_measured_in_seconds() -> None:
    for name in ("toy", "images", "speed-up", "table1"):
        for measurement in recipes[name].plan("paper", "smoke", range(1)).measurements:
            assert measurement.measure(), measurement
