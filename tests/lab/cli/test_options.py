"""What options mean, seen in the record."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.lab.cli._list import LISTINGS, Kind
from holdfast.lab.config import rule_names, threat_names
from tests.lab.cli.commands import SMALL, assert_refused, invoke, timeless

QUICK = ["train", *SMALL, "--quiet", "--folder", "run"]


def assert_trains(*arguments: str) -> dict[str, Any]:
    """The configuration of the run that the options make, which is run."""
    result = invoke(*QUICK, *arguments)
    assert result.exit_code == 0, result.output
    config: dict[str, Any] = json.loads(Path("run/run.json").read_text())["config"]
    return config


RULES = {
    "bucketing": "bucketing(bucket_size=2) | geometric-median",
    "bulyan": "bulyan(n_bad=1)",
    "centered-clipping": "centered-clipping(radius=1.0)",
    "clipping": "clipping(n_bad=2) | mean",
    "krum": "krum(n_bad=2)",
    "majority-vote": "majority-vote(group_size=3)",
    "mean-around-median": "mean-around-median(n_bad=2)",
    "minimum-diameter": "minimum-diameter(n_bad=2)",
    "mixing": "mixing(n_bad=2) | geometric-median",
    "multi-krum": "multi-krum(n_bad=2)",
    "norm-filter": "norm-filter(n_bad=2)",
    "norm-trim": "norm-trim(bad_fraction=0.25)",
    "resilience-filter": "resilience-filter(sigma=1.0)",
    "spectral-filter": "spectral-filter(n_bad=2)",
    "trimmed-mean": "trimmed-mean(n_bad=2)",
    "zeno": "zeno(n_bad=2)",
}
"""Rules that must be told something, with sensible arguments; the others stand for themselves."""


@pytest.mark.parametrize("name", rule_names())
def test_every_rule_and_preset_trains(name: str) -> None:
    trusted = ["--trusted", "20"] if name in ("zeno", "trusted-reference") else []
    rows = ["--rows", "9"]
    result = invoke(*QUICK, "--steps", "2", *rows, "--rule", RULES.get(name, name), *trusted)
    if name == "majority-vote":  # needs redundant rows, which those of a training are not
        assert_refused(result, "must")
    else:
        assert result.exit_code == 0, result.output
        assert len(timeless(Path("run"))) == 3


@pytest.mark.parametrize("name", [*threat_names(), "wrong-labels(labels=3)"])
def test_every_attack_and_corruption_trains(name: str) -> None:
    assert_trains("--steps", "2", "--attack", name, "--corrupt", "0.25")
    _first, last, end = timeless(Path("run"))
    assert end == {"end": "finished", "step": 2}
    assert ("attack_success" in last) == (name in ("backdoor", "wrong-labels(labels=3)"))


def test_every_name_that_is_listed_can_be_used() -> None:
    assert {name for name, _, _ in LISTINGS[Kind.RULES]()} == set(rule_names())
    assert {name for name, _, _ in LISTINGS[Kind.ATTACKS]()} == set(threat_names())


@pytest.mark.parametrize(
    "option", ["--selector", "--memory", "--partition", "--schedule", "--optimizer", "--model"]
)
def test_every_other_name_trains(option: str) -> None:
    kind = {"--memory": "memories"}.get(option, f"{option.removeprefix('--')}s")
    needs = {"--selector": "(fraction=0.5)"}
    rules = {"--selector": ["--memory", "none"], "--memory": ["--selector", "uniform(count=50)"]}
    for name, arguments, _ in LISTINGS[Kind(kind)]():
        if name in ("resnet-18", "lenet"):
            continue  # minutes, on a small machine
        text = f"{name}{needs.get(option, '') if arguments else ''}"
        result = invoke(
            "train", *SMALL, "--quiet", "--steps", "1", *rules.get(option, []), option, text
        )
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("epochs", "n_steps"), [("0.5", 4), ("1", 8), ("0.1", 1), ("0.0001", 1)])
def test_epochs_are_passes_over_the_data_rounded_up(epochs: str, n_steps: int) -> None:
    assert (
        assert_trains("--epochs", epochs, "--batch", "100")["n_steps"] == n_steps
    )  # 6000 samples, 800 a step


def test_corruptions_of_labels_know_the_number_of_classes() -> None:
    given = assert_trains("--steps", "1", "--attack", "wrong-labels", "--corrupt", "0.25")
    threat = given["threat"]
    assert threat["corruption"] == {"name": "wrong-labels", "labels": "flip", "n_classes": 10}
    assert threat["attack"] is None


def test_fixed_and_whole_rows_reach_the_run() -> None:
    threat = assert_trains(
        "--steps",
        "3",
        "--rows-every",
        "1",
        "--attack",
        "blur",
        "--corrupt",
        "0.25",
        "--fixed",
        "--whole-rows",
    )["threat"]
    assert (threat["adversaries"]["redrawn"], threat["whole_rows"]) == (False, True)
    bad = [entry["bad"] for entry in timeless(Path("run"))[:-1]]
    assert bad[0] == bad[1] == bad[2]
    assert len(bad[0]) == 2


def test_options_win_over_the_optimizers_text() -> None:
    assert (
        assert_trains("--steps", "1", "--optimizer", "adam(lr=5)", "--lr", "0.1")["optimizer"]["lr"]
        == 0.1
    )


@pytest.mark.parametrize(
    ("optimizer", "units"),
    [("sgd", "parameter"), ("sgd(momentum=0.9)", "gradient"), ("adam", "gradient")],
)
def test_memories_have_the_units_that_suit_the_optimizer(optimizer: str, units: str) -> None:
    assert (
        assert_trains("--steps", "1", "--rule", "bgmd", "--optimizer", optimizer)["memory"]["units"]
        == units
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rows", "1"],
        ["--batch", "1"],
        ["--rows", "1000", "--batch", "1", "--rule", "mean"],
        ["--seed", "99999999999999999999999999"],
        ["--partition", "shards(n_shards=7)", "--rows", "7"],
        ["--partition", "dirichlet(alpha=1e-9)"],
        ["--partition", "dirichlet", "--worker-momentum", "0.9"],
        ["--trusted", "5999"],
        ["--corrupt", "0"],
        ["--attack", "scaled-flip", "--corrupt", "0"],
        ["--attack", "non-finite", "--corrupt", "0.4", "--rule", "mean"],
        ["--rule", " bgmd( fraction = 0.2 ) "],
        ["--tensorboard"],
    ],
    ids=str,
)
def test_what_is_odd_and_right_trains(arguments: list[str]) -> None:
    assert_trains("--steps", "1", *arguments)


def test_the_same_command_again_shows_the_run_that_ended() -> None:
    first = invoke(*QUICK, "--steps", "2")
    before = Path("run/metrics.jsonl").read_bytes()
    second = invoke(*QUICK, "--steps", "2")
    assert second.output == first.output
    assert Path("run/metrics.jsonl").read_bytes() == before


def test_another_run_is_not_written_over() -> None:
    assert_trains("--steps", "2")
    before = Path("run/run.json").read_bytes()
    result = invoke(*QUICK, "--steps", "2", "--seed", "1")
    assert result.exit_code == 2
    assert "holds another" in result.stderr
    assert Path("run/run.json").read_bytes() == before


def test_every_seed_gets_a_folder_of_its_own_by_default(tmp_path: Path) -> None:
    for seed in ("0", "1"):
        assert invoke("train", *SMALL, "-q", "--steps", "1", "--seed", seed).exit_code == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [name.rsplit("-", 1)[0] for name in names] == [
        f"fashion-mnist-slice-logistic-regression-bgmd-seed-{i}" for i in (0, 1)
    ]


def test_one_step_is_not_steps() -> None:
    assert "after 1 step," in invoke(*QUICK, "--steps", "1").output


def test_help_of_every_command_says_what_its_options_are() -> None:
    for command in (
        ["train"],
        ["resume"],
        ["attack"],
        ["list"],
        ["data"],
        ["data", "list"],
        ["data", "fetch"],
    ):
        shown = invoke(*command, "--help", env={"COLUMNS": "160"})
        assert shown.exit_code == 0
        assert f"Usage: holdfast {' '.join(command)}" in shown.output
        assert invoke(*command, "-h", env={"COLUMNS": "160"}).output == shown.output


def test_no_listing_shows_markup_of_the_documentation() -> None:
    assert ":math:" not in invoke("list").output


@pytest.mark.parametrize("kind", list(Kind))
def test_a_listing_has_all_names_as_text_and_as_json(kind: Kind) -> None:
    plain = invoke("list", kind.value).output
    found = json.loads(invoke("list", kind.value, "--json").output)
    assert list(found) == [kind.value]
    assert all(
        set(entry) == {"name", "arguments", "what"} and entry["what"] for entry in found[kind.value]
    )
    assert all(entry["name"] in plain for entry in found[kind.value])


def test_all_listings_come_by_default() -> None:
    assert list(json.loads(invoke("list", "--json").output)) == [kind.value for kind in Kind]


COMPLETIONS = [
    ("holdfast train --rule bg", {"bgmd", "bgmd-paper", "bgmd-published"}),
    ("holdfast train --attack no", {"noisy-rows", "non-finite"}),
    ("holdfast attack no", {"noisy-rows", "non-finite"}),
    ("holdfast attack --rule kr", {"krum"}),
    ("holdfast train --data cif", {"cifar-10"}),
    ("holdfast data fetch mn", {"mnist"}),
    ("holdfast train --worker", {"--worker-momentum"}),
    ("holdfast res", {"resume"}),
    ("holdfast list sel", {"selectors"}),
]


@pytest.mark.parametrize(("line", "offered"), COMPLETIONS)
def test_the_shell_completes_names(line: str, offered: set[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    shown = invoke(env={"_HOLDFAST_COMPLETE": "complete_bash", **words})
    assert set(shown.output.split()) == offered
