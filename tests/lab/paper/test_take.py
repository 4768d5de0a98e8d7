"""Measurements are taken once; what fails does not stop the others."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.lab.paper import take_measurements
from holdfast.lab.paper.measurements import Measurement, ToyMedian, measurements
from holdfast.lab.records import read_measurement
from holdfast.lab.sweep import SweepResult

TOY = ToyMedian(bad_fraction=0.1, n_draws=2)


class Events(list[tuple[str, object]]):
    """Names of measurements, with whether they are new."""

    def take(self, *planned: Measurement, folder: Path, **options: Any) -> SweepResult:
        def note(measurement: Measurement, what: object) -> None:
            self.append((measurement.name, what))

        return take_measurements(planned, folder, measured=note, **options)


def test_measurements_are_taken_once(tmp_path: Path) -> None:
    events, folder = Events(), tmp_path / "made"
    result = events.take(TOY, folder=folder, command=["holdfast"])
    assert (result.n_runs, result.n_ended, result.failures, result.was_stopped) == (1, 1, [], False)
    (path,) = folder.iterdir()
    before = path.read_bytes()
    assert read_measurement(path).command == ("holdfast",)
    assert events.take(TOY, folder=folder) == result
    assert events == [(TOY.name, True), (TOY.name, False)]
    assert path.read_bytes() == before


def test_a_damaged_measurement_is_taken_again(tmp_path: Path) -> None:
    events = Events()
    events.take(TOY, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    whole = read_measurement(path).result
    path.write_text(path.read_text()[:50])
    events.take(TOY, folder=tmp_path)
    assert events == [(TOY.name, True), (TOY.name, True)]
    assert read_measurement(path).result == whole


class Broken(Measurement):
    """Fails in a way that nobody expected."""

    name = "broken"

    def measure(self) -> dict[str, Any]:
        raise RuntimeError("no luck")


def test_a_measurement_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        measurements, "to_json", lambda one: {"name": one.name, "n": getattr(one, "n", 0)}
    )
    events, newer = Events(), ToyMedian(bad_fraction=0.1, n=7)
    events.take(newer, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    text = path.read_text().replace('"version": 1', '"version": 9')
    path.write_text(text)
    result = events.take(Broken(), newer, TOY, folder=tmp_path)
    assert (result.n_ended, result.n_runs, len(result.errors)) == (1, 3, 2)
    assert result.failures[0] == "broken: RuntimeError: no luck"
    assert "update holdfast" in result.failures[1]
    assert events[1:] == [(TOY.name, True)]
    assert path.read_text() == text


def test_a_stop_before_the_first_measurement(tmp_path: Path) -> None:
    result = Events().take(TOY, folder=tmp_path, stop=lambda: True)
    assert (result.was_stopped, result.n_ended) == (True, 0)
    assert not list(tmp_path.iterdir())
