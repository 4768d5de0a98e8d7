"""`--data FOLDER` and `--model module:function` as a user meets them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.lab.records import read_record
from tests.lab.cli.commands import assert_refused, case, invoke
from tests.lab.data.test_own_data import table

PLACE = "my dåta/of today"
TRAIN = [
    "train",
    "--data",
    PLACE,
    "--rows",
    "6",
    "--batch",
    "4",
    "--threads",
    "1",
    "--folder",
    "run",
]
NETS = """
from torch import nn

def net():
    return nn.Linear(6, 3)

def narrow():
    return nn.Linear(5, 3)
"""


@pytest.fixture(autouse=True)
def own_place(own_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(PLACE).parent.mkdir()
    table(Path(PLACE))
    Path("nets_of_mine.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delitem(sys.modules, "nets_of_mine", raising=False)


def test_a_folder_is_trained_on_resumed_and_refused_when_it_has_changed() -> None:
    shown = invoke(*TRAIN, "--model", "nets_of_mine:net", "--steps", "4")
    assert shown.exit_code == 0, shown.output
    assert f"data: {PLACE}, 120 samples" in shown.output
    config = read_record(Path("run")).config
    assert (config["data"], config["own_data"]["folder"]) == ("of today", PLACE)
    assert len(config["own_data"]["digest"]) == 64
    assert invoke("resume", "run", "--steps", "6", "-q").exit_code == 0
    Path(PLACE).rename("moved")
    refused = invoke("resume", "run", "--steps", "8", "-q")
    assert_refused(refused, "name their folder by --data-dir", code=4)
    found = invoke("resume", "run", "--steps", "8", "-q", "--data-dir", "moved")
    assert "after 8 steps" in found.output
    np.save("moved/y_test.npy", np.arange(30)[::-1] % 3)
    changed = invoke("resume", "run", "--steps", "9", "-q", "--data-dir", "moved")
    assert_refused(changed, "`--data` must hold the data of this run", "whose files have changed")
    assert read_record(Path("run")).n_steps == 8


def test_changed_data_are_another_run() -> None:
    assert invoke(*TRAIN, "--model", "mlp", "--steps", "1", "-q").exit_code == 0
    np.save(f"{PLACE}/y_test.npy", np.arange(30)[::-1] % 3)
    refused = invoke(*TRAIN, "--model", "mlp", "--steps", "1", "-q")
    assert_refused(refused, f"`--data` is {PLACE} (SHA-256 ", "here")


REFUSED = [
    ([], "`shape of the samples` must be (channels, height, width), 16 or more, for this model"),
    (["--model", "tiny-cnn"], "mlp and logistic-regression take any, got (6,)."),
    (["--model", "nets_of_mine:narrow"], "`--model` must take samples [b, 6] and return [b, 3]"),
    (["--model", "nets_of_mine:nett"], "nets_of_mine.py, got 'nett' (did you mean 'net'?)."),
    (["--model", "mlp", "--attack", "blur", "--corrupt", "0.2"], "`--attack` must be one of rows"),
    (["--model", "mlp", "--attack", "wrong-labels", "--corrupt", "0.2"], "have n_classes=3, the"),
    (["--model", "mlp", "--data", "away"], "`--data` must be a folder or one of fashion-mnist-"),
    (["--model", "mlp", "--rows", "600"], "`--rows times --batch` must be at most 120"),
]


def test_what_does_not_fit_the_data_is_refused_before_the_plan_is_shown() -> None:
    for arguments, words in REFUSED:
        with case(arguments):
            result = invoke(*TRAIN, "--steps", "1", *arguments)
            assert_refused(result, words)
            assert result.stdout == ""
    assert not Path("run").exists()


def test_own_data_can_be_attacked_in_rows_and_in_labels() -> None:
    options = ["--model", "mlp", "--steps", "2", "-q", "--corrupt", "0.4"]
    for number, attack in enumerate(("scaled-flip", "wrong-labels(n_classes=3)")):
        command = [*TRAIN, *options, "--attack", attack, "--folder", str(number)]
        with case(attack):
            assert invoke(*command).exit_code == 0
    compared = ["attack", "huddle", "--rule", "mean", "--data", PLACE, "--model", "mlp", "--json"]
    result = invoke(*compared, "--workers", "5", "--steps", "2", "--jobs", "1", "--threads", "1")
    assert [row["end"] for row in json.loads(result.stdout)] == ["finished", "finished"]
