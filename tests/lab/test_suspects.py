"""Suspects in the record: those who are bad, while they are, and nobody else."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holdfast.aggregators import RadiusFilter
from holdfast.lab.config import Config
from holdfast.lab.data import load
from holdfast.lab.partitions import Dirichlet
from holdfast.lab.training import resume, run
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._loop import training
from holdfast.monitor import Monitor
from holdfast.threats import Adversaries
from tests.lab.cases import tiny, working

pytestmark = pytest.mark.usefixtures("few_images")
FIXED, REDRAWN = Adversaries(n_bad=2, redrawn=False), Adversaries(n_bad=2)


def flipped(who: Adversaries) -> Config:
    return tiny("radius-filter", "scaled-flip", who, n_steps=14, evaluate_every=20, rows_every=1)


def test_fixed_adversaries_become_suspect_and_resumed_is_uninterrupted(tmp_path: Path) -> None:
    record = run(flipped(FIXED), tmp_path / "whole")
    bad = record.entries[0]["bad"]
    assert len(bad) == 2
    assert ["suspects" in entry for entry in record.entries] == 9 * [False] + 5 * [True]
    assert all(entry["suspects"] == bad for entry in record.entries[9:])

    folder = tmp_path / "in parts"
    run(flipped(FIXED), folder, stop=iter([False] * 3 + [True]).__next__)
    run(flipped(FIXED), folder, stop=iter([False] * 6 + [True]).__next__)
    assert resume(folder).without_times() == record.without_times()


def test_that_nobody_is_suspect_any_more_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = flipped(FIXED)
    experiment = Experiment(config, load(config.data), torch.device("cpu"))
    monkeypatch.setattr(Monitor, "_found", lambda self: {1: self} if self.n_steps == 2 else {})
    monkeypatch.setattr(Monitor, "row", 1, raising=False)
    entries = list(training(experiment, 0))
    assert [entry.get("suspects") for entry in entries[:5]] == [None, [1], [], None, None]


@pytest.mark.parametrize(
    ("config", "is_watched"),
    [
        (flipped(FIXED), True),
        (flipped(REDRAWN), False),
        (tiny(), False),
        (tiny(partition=Dirichlet(alpha=0.5)), True),
        (tiny("radius-filter", "scaled-flip", REDRAWN, partition=Dirichlet(alpha=0.5)), False),
        (tiny("mean", "backdoor(target=2)", FIXED, whole_rows=True), True),
        (tiny("mean", "salt-and-pepper", Adversaries(bad_fraction=0.3, redrawn=False)), False),
    ],
)
def test_rows_are_watched_if_they_have_owners(config: Config, is_watched: bool) -> None:
    experiment = Experiment(config, load(config.data), torch.device("cpu"))
    assert (experiment.monitor is not None) == is_watched
    entry = next(training(experiment, 0))
    assert ("monitor" in entry["seconds"]) == is_watched
    assert "suspects" not in entry


def test_workers_are_watched_and_liars_named(tmp_path: Path) -> None:
    config = working("exchange(send=0.1)", "scaled-flip", n_steps=14, rows_every=1)
    record = run(config, tmp_path / "liars")
    assert [entry.get("suspects", []) for entry in record.entries[9:]] == 5 * [
        record.entries[0]["bad"]
    ]
    honest = run(working("exchange(send=0.1)", n_steps=14), tmp_path / "honest")
    assert not any("suspects" in entry for entry in honest.entries)


@pytest.mark.parametrize("n_absent", [0, 3])
@pytest.mark.parametrize(
    "scheme", ["exchange(send=0.1)", "everything", "rosdhb(send=0.1)", "byz-ef21(send=0.1)"]
)
def test_rows_belong_to_their_workers_also_where_there_are_more_than_ten(
    scheme: str, n_absent: int, tmp_path: Path
) -> None:
    """The eleventh worker is not the third one, whose name begins alike."""
    config = working(scheme, "scaled-flip", n_rows=13, absent=n_absent / 13, rows_every=1)
    for entry in run(replace(config, rule=RadiusFilter()), tmp_path).entries:
        assert entry["bad_weight"] == 0.0
        assert set(entry["bad"]) <= set(entry["rejected"])


def test_clients_with_unequal_data_are_not_suspect(tmp_path: Path) -> None:
    record = run(tiny("radius-filter", partition=Dirichlet(alpha=0.5), n_steps=60), tmp_path)
    assert not any("suspects" in entry for entry in record.entries)
