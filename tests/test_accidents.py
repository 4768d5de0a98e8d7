"""The experiment on accidents runs, and its committed results keep their promises."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import accidents, faults, run_records, small_models
from examples.accidents import ABSENT, FILTER, PLAIN, measured
from examples.faults import FAULTS, NONE
from examples.run_records import chosen
from examples.small_models import Training

from holdfast.aggregators import Mean
from holdfast.geometry import DenseRows

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def run(way: str, fault: str = NONE, share: float = 0.0, **others: Any) -> dict[str, Any]:
    """A short run of the cheapest model."""
    settings = {"model": "MLP, momentum", "rows": 8, "row_size": 8, "seed": 0, "steps": 20}
    return settings | {"way": way, "fault": fault, "share": share} | others


@pytest.mark.parametrize("fault", FAULTS)
def test_the_filter_leaves_out_what_is_spoiled(fault: str) -> None:
    """A short version of docs/results/accidents.md: one model, one seed, 20 steps."""
    best = measured(run(ABSENT, share=0.4))["accuracy"]
    found = measured(run(FILTER, fault, 0.4))
    assert (found["bad"], found["honest"]) == (20 * 3, 20 * 5)
    assert found["bad_missed"] == 0
    assert found["accuracy"] > best - 1 > 50


def test_a_rule_that_is_not_robust_is_seen_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(accidents.RULES, FILTER, Mean())
    found = measured(run(FILTER, "times -100", 0.4))
    assert found["bad_missed"] == found["bad"]
    assert found["accuracy"] is None or found["accuracy"] < 40


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        ("lenet", "sgd"),
        ("mlp", "adam"),
        ("encoder", "adamw"),
        pytest.param("gpt-2", "adamw", marks=pytest.mark.slow),
    ],
)
def test_the_loop_on_rows_is_the_plain_loop_with_the_mean(model: str, optimizer: str) -> None:
    """LeNet draws dropout in another order, so it is only seen to train."""
    training = Training(model=model, optimizer=optimizer, seed=0, n_steps=4, n_rows=2, row_size=4)
    plain, mean = training.plain(), training.robust(Mean())
    assert model == "lenet" or mean == pytest.approx(plain, abs=0.3)
    assert mean > 5


def test_batch_normalization_is_trained_on_rows() -> None:
    """Batch statistics are those of a row, so the accuracy differs a little."""
    training = Training(
        model="batch-norm-cnn", optimizer="momentum", seed=0, n_steps=20, n_rows=4, row_size=16
    )
    assert training.robust(Mean()) == pytest.approx(training.plain(), abs=5)


def test_text_is_followed_by_its_next_characters() -> None:
    data = small_models.text()
    assert torch.equal(data.inputs[:, 1:], data.targets[:, :-1])
    assert torch.equal(data.inputs[1:, 0], data.targets[:-1, -1])
    assert int(data.inputs.max()) < small_models.N_CHARACTERS


def test_the_ratio_is_in_majority_radii() -> None:
    rows = DenseRows(torch.tensor([[1.0], [2.0], [3.0], [4.5], [90.0]]))
    honest = torch.tensor([True, True, True, True, False])
    assert faults.largest_ratio(rows, honest) == pytest.approx(2.5)  # of 4.5, about 2, radius 1
    broken = DenseRows(torch.tensor([[torch.nan], [1.0], [2.0], [3.0]]))
    assert faults.largest_ratio(broken, torch.tensor([False, True, True, True])) == 1.0


def test_runs_of_the_record_are_skipped(tmp_path: Path) -> None:
    record = tmp_path / "runs" / "record.jsonl"
    runs = [run(PLAIN, steps=2), run(FILTER, steps=2)]
    first = run_records.sweep(runs[:1], record, measured)
    both = run_records.sweep(runs, record, measured)
    assert both[0] == first[0]
    assert len(record.read_text().splitlines()) == 2
    assert run_records.sweep(runs, record, lambda _: pytest.fail("measured again")) == both


def test_the_script_writes_its_record_and_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"models": "MLP, momentum", "rows": "8", "seeds": "1", "steps": "2"}
    arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["accidents", *arguments, "--page", "page.md"])
    (tmp_path / "page.md").write_text("# Accidents\n\nText.\n\n## Tables\n\nold\n")
    accidents.main()
    done = [json.loads(line) for line in Path("accidents.jsonl").read_text().splitlines()]
    assert [chosen(done, way=way) != [] for way in (PLAIN, ABSENT, FILTER)] == [True] * 3
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Accidents\n\nText.\n\n## Tables\n\n### Without faults\n")
    assert "old" not in page
    assert (
        f"| MLP, momentum | 8 | 1 | {run_records.accuracy_cell(chosen(done, way=PLAIN))} |" in page
    )
    assert "With faults" in capsys.readouterr().out


def test_a_run_that_diverged_is_shown_as_such() -> None:
    assert run_records.accuracy_cell([{"accuracy": 1.0}, {"accuracy": None}]) == "diverges (1 of 2)"


def committed() -> list[dict[str, Any]]:
    text = (RESULTS / "accidents.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_page_shows_the_committed_record() -> None:
    tables = {title: make(committed()) for title, make in accidents.TABLES.items()}
    lines = run_records.markdown(tables)
    assert (RESULTS / "accidents.md").read_text().splitlines()[-len(lines) :] == lines


def test_no_run_is_recorded_twice() -> None:
    settings = list(accidents.plan(list(accidents.MODELS), list(accidents.ROWS), 3)[0])
    keys = [tuple(run[key] for key in settings) for run in committed()]
    assert len(set(keys)) == len(keys)


IMAGE_MODELS = [name for name in accidents.MODELS if "GPT" not in name]


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_on_images_the_filter_is_near_the_plain_loop(model: str) -> None:
    """Within half a point; the seeds of GPT-2 scatter too widely to tell, as the page says."""
    lines = [line for line in accidents.without_faults(committed()) if line[0] == model]
    assert len(lines) == len(accidents.ROWS)
    assert all(abs(float(line[6])) < 0.5 for line in lines)


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_on_images_the_filter_is_near_the_run_without_bad_rows(model: str) -> None:
    """Within one point under every fault, at both shares."""
    lines = [line for line in accidents.with_faults(committed()) if line[0] == model]
    assert len(lines) == len(accidents.ROWS) * len(accidents.SHARES)
    for line in lines:
        absent, *found = map(float, line[4 : 5 + len(FAULTS)])
        assert len(found) == len(FAULTS)
        assert min(found) > absent - 1


def test_faults_that_hide_nothing_are_never_missed() -> None:
    done = [run for run in committed() if run["way"] == FILTER]
    for fault in ("noise", "NaN", "bit flips"):
        spoiled = chosen(done, fault=fault)
        assert spoiled
        assert sum(run["bad_missed"] for run in spoiled) == 0


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_on_images_hardly_an_honest_row_is_rejected(model: str) -> None:
    """Less than one in a thousand with 8 samples per row, none with 16 or 32."""
    clean = chosen(committed(), way=FILTER, fault=NONE, model=model)
    for size, rows, limit in ((8, 8, 1e-3), (8, 16, 1e-3), (8, 32, 1e-3), (16, 8, 0), (32, 8, 0)):
        runs = chosen(clean, row_size=size, rows=rows)
        rejected, honest = (sum(run[key] for run in runs) for key in ("honest_rejected", "honest"))
        assert honest > 0
        assert rejected <= limit * honest
