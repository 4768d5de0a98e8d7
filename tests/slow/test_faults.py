"""A rank that goes bad in the middle of a real run, with and without the guard."""

from pathlib import Path
from typing import Any

import pytest

from tests.slow.launch import found, run

SCRIPT = Path(__file__).parent / "many_runs.py"
GRADIENTS = ("nan", "zeros", "noise", "scaled-flip", "times-50", "bit-flips")
STEPS = 120

Runs = dict[str, dict[str, Any]]


def runs(folder: Path, lines: list[str]) -> Runs:
    return {one["run"]: one for one in found(run(SCRIPT, *lines, folder=folder))}


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    lines = ["", "--plain", *(f"--fault {name}" for name in GRADIENTS)]
    lines += ["--fault weights", "--fault data", "--fault data --plain", "--fault slow --steps 20"]
    lines += ["--fault scaled-flip --plain"]
    # The last of two options counts.
    found = runs(tmp_path_factory.mktemp("ddp"), [f"--steps {STEPS} {line}" for line in lines])
    return {line: found[f"--steps {STEPS} {line}"] for line in lines}


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    lines = ["", "--plain", "--fault nan", "--fault scaled-flip", "--fault scaled-flip --plain"]
    found = runs(tmp_path_factory.mktemp("fsdp"), [f"--fsdp --steps 60 {line}" for line in lines])
    return {line: found[f"--fsdp --steps 60 {line}"] for line in lines}


def test_without_a_fault_nothing_changes(ddp: Runs, fsdp: Runs) -> None:
    for every in (ddp, fsdp):
        assert every[""]["accuracy"] == pytest.approx(every["--plain"]["accuracy"], abs=0.3)
        assert every[""]["rejected"] == [0, 0, 0, 0]
        assert every[""]["suspects"] == {}


@pytest.mark.parametrize("name", GRADIENTS)
def test_bad_gradients_do_not_cost_accuracy_and_are_named(ddp: Runs, name: str) -> None:
    clean, bad = ddp[""], ddp[f"--fault {name}"]
    assert bad["accuracy"] > clean["accuracy"] - 1.5
    assert bad["rejected"] == [0, STEPS // 2, 0, 0]
    assert bad["suspects"] == {"1": "rejected in 20 of the last 20 steps"}


@pytest.mark.parametrize("name", ["nan", "scaled-flip"])
def test_the_same_holds_for_shards(fsdp: Runs, name: str) -> None:
    bad = fsdp[f"--fault {name}"]
    assert bad["accuracy"] > fsdp[""]["accuracy"] - 2
    assert bad["rejected"] == [0, 30, 0, 0]
    assert list(bad["suspects"]) == ["1"]


def test_without_the_guard_one_rank_ruins_all(ddp: Runs, fsdp: Runs) -> None:
    for every in (ddp, fsdp):
        assert every["--fault scaled-flip --plain"]["accuracy"] < 30


def test_changed_weights_are_replaced(ddp: Runs) -> None:
    """The checksums of every tenth step find them; the gradients are not finite until then."""
    assert ddp["--fault weights"]["accuracy"] > ddp[""]["accuracy"] - 1.5
    assert ddp["--fault weights"]["rejected"] == [0, 10, 0, 0]


def test_poisoned_data_do_no_more_harm_than_without_the_guard(ddp: Runs) -> None:
    bad = ddp["--fault data"]
    assert bad["accuracy"] > ddp["--fault data --plain"]["accuracy"] - 1
    honest = [n for rank, n in enumerate(bad["rejected"]) if rank != 1]
    assert honest == [0, 0, 0]


def test_a_slow_rank_is_waited_for(ddp: Runs) -> None:
    assert ddp["--fault slow --steps 20"]["rejected"] == [0, 0, 0, 0]


def test_all_ranks_have_the_same_parameters_at_the_end(ddp: Runs, fsdp: Runs) -> None:
    for one in [*ddp.values(), *fsdp.values()]:
        assert len(one["parameters"].split()) == 1, one["run"]
