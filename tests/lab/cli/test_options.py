"""What options mean, seen in configurations and records."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from holdfast.aggregators import rules
from holdfast.lab.cli import _list
from holdfast.lab.cli._app import app
from holdfast.lab.cli._attack import _config as compared_config
from holdfast.lab.cli._config import config_of, typed_options
from holdfast.lab.cli._defaults import DEFAULT_STEPS, RULES
from holdfast.lab.cli._list import Kind, listings, names_of
from holdfast.lab.cli._option import flag_of
from holdfast.lab.cli._options import OPTIONS
from holdfast.lab.cli._spelling import SPELLING
from holdfast.lab.cli._summary import defenseless, ending, plan, result_of
from holdfast.lab.config import Config, Workers, parse_threat, rule_names, threat_names
from holdfast.lab.optimizers import Adam, Sgd, optimizers
from holdfast.lab.records import Record, read_record
from holdfast.lab.schemes import Exchange, SendEverything, schemes
from holdfast.lab.training import run
from holdfast.threats import Adversaries
from tests.aggregators.cases import shortest_text
from tests.lab.cli.commands import SMALL, assert_refused, case, environment, invoke, timeless

QUICK = ["train", *SMALL, "--quiet", "--folder", "run"]
DEFAULTS = {name: option.default for name, option in OPTIONS.items()}
TINY = {"model": "logistic-regression", "rows": 9, "batch": 2, "steps": 2}


def assert_trains(*arguments: str) -> dict[str, Any]:
    """The configuration of the run that the options make, which is run."""
    result = invoke(*QUICK, *arguments)
    assert result.exit_code == 0, result.output
    config: dict[str, Any] = json.loads(Path("run/run.json").read_text())["config"]
    return config


def trained(**given: object) -> list[Mapping[str, Any]]:
    """The record of a run with these options, trained in this process."""
    folder = Path("trained", str(abs(hash(frozenset(given.items())))))
    run(config_of(DEFAULTS | TINY | given, default_steps=2), folder)
    return timeless(folder)


def test_every_rule_and_preset_trains() -> None:
    assert set(names_of(Kind.RULES)) == set(rule_names())
    for name in names_of(Kind.RULES):
        with case(name):
            if name == "majority-vote":  # needs redundant rows, which those of a training are not
                with pytest.raises(ValueError, match="must"):
                    trained(rule="majority-vote(group_size=3)")
            else:
                trusted = 20 if name in ("zeno", "trusted-reference") else 0
                text = shortest_text(name) if name in rules else name
                assert len(trained(rule=text, trusted=trusted)) == 3


def test_every_attack_and_corruption_trains() -> None:
    assert set(names_of(Kind.ATTACKS)) == set(threat_names())
    others = set(names_of(Kind.ATTACKS)) - {"late"}
    for name in [*sorted(others), "late(start=1) | scaled-flip", "wrong-labels(labels=3)"]:
        with case(name):
            text = "late(start=1) | huddle" if name == "late" else name
            _first, last, end = trained(attack=text, corrupt=0.25)
            assert end == {"end": "finished", "step": 2}
            measured = name in ("backdoor", "wrong-labels(labels=3)")
            assert ("attack_success" in last) == measured


def test_every_other_name_trains() -> None:
    needs: dict[Kind, dict[str, object]] = {
        Kind.SELECTORS: {"memory": "none"},
        Kind.MEMORIES: {"selector": "uniform(count=50)"},
        Kind.PARTITIONS: {"rows": 8},
        Kind.SCHEMES: {"rows": None, "workers": 9},
        Kind.LIES: {"rows": None, "workers": 9, "send": 0.02, "corrupt": 0.3},
    }
    options = {
        Kind.SELECTORS: "selector",
        Kind.MEMORIES: "memory",
        Kind.PARTITIONS: "partition",
        Kind.SCHEDULES: "schedule",
        Kind.OPTIMIZERS: "optimizer",
        Kind.MODELS: "model",
        Kind.SCHEMES: "scheme",
        Kind.LIES: "lie",
    }
    for kind, option in options.items():
        for name, arguments, _ in listings()[kind]:
            if name in ("resnet-18", "lenet"):
                continue  # minutes, on a small machine
            text = f"{name}(fraction=0.5)" if kind == Kind.SELECTORS and arguments else name
            with case(kind, name):
                assert trained(**needs.get(kind, {}), **{option: text})


def test_every_field_of_a_configuration_has_an_option() -> None:
    # `--data` sets both fields of the data.
    options = {one.field for one in OPTIONS.values()} | {"own_data"}
    assert {one.name for one in fields(Config)} <= options
    assert SPELLING["n_rows"] == "--rows"
    assert SPELLING["n_steps"] == "--steps"
    assert SPELLING["threat"] == "--attack"


@pytest.mark.parametrize(("epochs", "n_steps"), [(0.5, 4), (1.0, 8), (0.1, 1), (0.0001, 1)])
def test_epochs_are_passes_over_the_data_rounded_up(epochs: float, n_steps: int) -> None:
    given = DEFAULTS | {"epochs": epochs, "rows": 8, "batch": 100}  # 800 of 6000 samples per step
    assert config_of(given, default_steps=1).n_steps == n_steps


def test_fixed_and_whole_rows_reach_the_run() -> None:
    bad = ["--attack", "blur", "--corrupt", "0.25", "--fixed", "--whole-rows"]
    threat = assert_trains("--steps", "3", "--rows-every", "1", *bad)["threat"]
    assert (threat["adversaries"]["redrawn"], threat["whole_rows"]) == (False, True)
    found = [entry["bad"] for entry in timeless(Path("run"))[:-1]]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 2


def test_options_win_over_the_optimizers_text() -> None:
    given = DEFAULTS | {"optimizer": "adam(lr=5)", "lr": 0.1, "weight_decay": 0.01}
    optimizer = config_of(given, default_steps=1).optimizer
    assert optimizer == Adam(lr=0.1, weight_decay=0.01)


@pytest.mark.parametrize(
    ("optimizer", "units"),
    [("sgd", "parameter"), ("sgd(momentum=0.9)", "gradient"), ("adam", "gradient")],
)
def test_memories_have_the_units_that_suit_the_optimizer(optimizer: str, units: str) -> None:
    given = DEFAULTS | {"rule": "bgmd-paper", "optimizer": optimizer}
    config = config_of(given, default_steps=1)
    assert getattr(config.memory, "units", None) == units


def test_workers_are_bad_always_or_never_and_have_the_rule_of_their_scheme() -> None:
    given = DEFAULTS | {"workers": 20, "send": 0.02, "attack": "huddle", "corrupt": 0.4}
    config = config_of(given, default_steps=1)
    assert (config.n_rows, config.threat.adversaries.redrawn) == (20, False)
    assert config.workers == Workers(scheme=Exchange(send=0.02))
    assert rules.format(config.rule) == "blockwise | geometric-median"
    assert config.optimizer == Sgd()
    plain = config_of(DEFAULTS | {"workers": 20}, default_steps=1)
    assert plain.workers == Workers(scheme=SendEverything())
    assert rules.format(plain.rule) == "geometric-median"


def test_epochs_count_local_steps() -> None:
    given = {"epochs": 1.0, "workers": 10, "batch": 20, "local_steps": 3}
    assert config_of(DEFAULTS | given, default_steps=1).n_steps == 10


def test_what_is_odd_and_right_trains() -> None:
    for given in (
        {"rows": 1},
        {"batch": 1},
        {"rows": 1000, "batch": 1, "rule": "mean"},
        {"seed": 99999999999999999999999999},
        {"partition": "shards(n_shards=7)", "rows": 7},
        {"partition": "dirichlet(alpha=1e-9)"},
        {"partition": "dirichlet", "worker_momentum": 0.9},
        {"average": 0.98},
        {"trusted": 5999},
        {"corrupt": 0.0},
        {"attack": "scaled-flip", "corrupt": 0.0},
        {"attack": "non-finite", "corrupt": 0.4, "rule": "mean"},
        {"rule": " bgmd( fraction = 0.2 ) "},
        {"rows": None, "workers": 1, "send": 1.0},
        {"rows": None, "workers": 9, "send": 0.02, "rule": "mean", "absent": 0.5},
        {"rows": None, "workers": 9, "optimizer": "adamw", "local_steps": 3, "outer_lr": 0.7},
        {"rows": None, "workers": 9, "scheme": "rosdhb", "worker_momentum": 0.9},
        {"rows": None, "workers": 8, "send": 0.02, "partition": "shards", "weight_decay": 0.1},
    ):
        with case(given):
            assert trained(steps=1, **given)


def test_the_plan_says_if_a_mean_of_the_parameters_is_tested() -> None:
    mean = "mean of the parameters over some 50 steps, 0.98 of the past"
    for average, wanted in {0.98: mean, 0.0: None}.items():
        config = config_of(DEFAULTS | TINY | {"average": average}, default_steps=2)
        found = dict(plan(config, Path("run"))).get("tested", "")
        assert (wanted in found) if wanted else not found


def test_numbers_of_steps_have_separators() -> None:
    config = config_of(DEFAULTS | TINY | {"steps": 5000}, default_steps=2)
    assert dict(plan(config, Path("run")))["training"].startswith("5,000 steps (")
    record = Record(
        folder=Path("run"),
        run={"config": {"n_steps": 5000}, "hash": ""},
        entries=[{"step": n} for n in range(1, 1235)],
        end=None,
    )
    assert ending(record) == "stopped after step 1,234 of 5,000"
    assert result_of(record) == "stopped after step 1,234"


def test_a_rule_that_resists_nothing_with_so_few_rows_is_noted() -> None:
    too_few = ["train", *SMALL, "--rows", "2", "--steps", "1"]
    text = "Note: With 2 rows, radius-filter resists no bad row; it needs at least 3.\n"
    assert invoke(*too_few, "--folder", "few").stderr == text
    assert invoke(*too_few, "--folder", "few").stderr == ""  # which has ended
    assert invoke(*too_few, "--folder", "quiet", "--quiet").stderr == ""
    assert invoke(*too_few, "--folder", "mean", "--rule", "mean").stderr == ""
    assert invoke(*too_few, "--folder", "enough", "--rows", "3").stderr == ""
    compared = ["attack", "huddle", *SMALL, "--rows", "2", "--steps", "1", "--corrupt", "0.5"]
    assert invoke(*compared, "--rule", "mean", "--rule", "radius-filter").stderr == text


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"rule": "mean", "rows": 2}, None),
        ({"rule": "geometric-median", "rows": 3}, None),
        (
            {"rule": "geometric-median", "rows": 1},
            "With 1 row, geometric-median resists no bad row",
        ),
        ({"rule": "norm-trim(bad_fraction=0.2)", "rows": 4}, "it needs at least 5."),
        ({"rows": None, "workers": 2, "send": 0.5}, "geometric-median resists no bad worker;"),
    ],
)
def test_only_rules_that_resist_more_with_more_rows_are_noted(
    given: dict[str, Any], wanted: str | None
) -> None:
    found = defenseless(config_of(DEFAULTS | TINY | given, default_steps=1))
    assert (found is None) if wanted is None else (wanted in (found or ""))


def test_tensorboard_files_are_written() -> None:
    assert_trains("--steps", "1", "--tensorboard")
    assert list(Path("run/tensorboard").iterdir())


def test_the_same_command_again_shows_the_run_that_ended() -> None:
    first = invoke(*QUICK, "--steps", "1")
    assert "after 1 step," in first.output
    before = Path("run/metrics.jsonl").read_bytes()
    assert invoke(*QUICK, "--steps", "1").output == first.output
    assert Path("run/metrics.jsonl").read_bytes() == before


def test_another_run_is_not_written_over() -> None:
    assert_trains("--steps", "2")
    before = Path("run/run.json").read_bytes()
    for seed in ("1", "2"):
        result = invoke(*QUICK, "--steps", "2", "--seed", seed)
        assert result.exit_code == 2
        assert f"holds another (`--seed` is 0 there, {seed} here)" in result.stderr
        assert Path("run/run.json").read_bytes() == before
        Path("run/metrics.jsonl").write_bytes(b"")  # the same for a run that has not ended


DIFFERENCES: list[tuple[list[str], list[str], str]] = [
    # Options of the first run, those of the second, and what is said of both.
    ([], ["--lr", "0.2"], "`--lr` is 0.01 there, 0.2 here"),
    ([], ["--optimizer", "adam"], "`--optimizer` is sgd(momentum=0.9) there, adam here"),
    ([], ["--batch", "3"], "`--batch` is 2 there, 3 here"),
    ([], ["--rule", "krum(n_bad=1)"], "`--rule` is radius-filter there, krum(n_bad=1) here"),
    ([], ["--selector", "cyclic(fraction=0.5)"], "`--selector` is everything there, cyclic("),
    ([], ["--rule", "mean", "--memory", "row"], "`--memory` is not given there, row("),
    ([], ["--schedule", "cosine"], "`--schedule` is constant there, cosine here"),
    ([], ["--data", "mnist", "--offline"], "`--data` is fashion-mnist-slice there, mnist here"),
    ([], ["--evaluate-every", "7"], "`--evaluate-every` is 100 there, 7 here"),
    ([], ["--attack", "huddle", "--corrupt", "0.25"], "`--attack` is not given there, huddle here"),
    (
        ["--attack", "huddle", "--corrupt", "0.25"],
        ["--attack", "huddle", "--corrupt", "0.4", "--fixed"],
        "`--corrupt` is 0.25 there, 0.4 here, `--fixed` is not given there, given here)",
    ),
    (["--steps", "1"], ["--weight-decay", "1"], "(`--weight-decay` is 0 there, 1 here)"),
]


def test_the_options_that_differ_from_those_of_another_run_are_named() -> None:
    for number, (first, second, words) in enumerate(DIFFERENCES):
        with case(first, second):
            command = ["train", *SMALL, "-q", "--folder", f"run {number}"]
            assert invoke(*command, "--steps", "1", *first).exit_code == 0
            result = invoke(*command, "--steps", "1", *second)
            assert_refused(result, "`--folder` must be new, or hold this very run", words)


WORKERS = ["train", "--model", "logistic-regression", "--batch", "2", "--threads", "1", "-q"]


def test_the_options_of_workers_that_differ_are_named() -> None:
    command = [*WORKERS, "--steps", "1", "--folder", "run"]
    assert invoke(*command, "--workers", "8", "--send", "0.1").exit_code == 0
    result = invoke(*command, "--workers", "9", "--absent", "0.2", "--scheme", "rosdhb")
    words = ("`--workers` is 8 there, 9 here", "`--absent` is 0 there, 0.2 here", "`--scheme` is")
    assert_refused(result, *words)
    assert_refused(invoke(*command, "--rows", "8"), "`--rows` is not given there, 8 here")


def test_every_field_of_a_configuration_has_a_typed_form() -> None:
    """Two configurations that are typed alike are the same run, except for its length."""
    workers = Workers(scheme=schemes.parse("exchange(send=0.1)"))
    base = Config(n_rows=8, row_size=2, n_steps=1)
    flags = set(typed_options(base)) | set(
        typed_options(replace(base, workers=workers, optimizer=Sgd()))
    )
    attacked = parse_threat("huddle", Adversaries(bad_fraction=0.25, redrawn=False))
    flags |= set(typed_options(replace(base, threat=attacked)))
    fields_typed = {option.field for name, option in OPTIONS.items() if flag_of(name) in flags}
    assert {one.name for one in fields(Config)} - fields_typed == {"memory", "n_steps", "own_data"}


def test_more_steps_extend_a_run_by_both_commands() -> None:
    assert invoke(*QUICK[:-1], "whole", "--steps", "5").exit_code == 0
    assert invoke(*QUICK, "--steps", "2").exit_code == 0
    assert "after 4 steps" in invoke(*QUICK, "--steps", "4").output
    extended = invoke("resume", "run", "--steps", "5", "-q")
    assert "after 5 steps" in extended.output
    one, other = read_record(Path("run")), read_record(Path("whole"))
    assert one.without_times() == other.without_times()
    assert (one.hash, one.end) == (other.hash, other.end)
    refused = invoke("resume", "run", "--steps", "3", "-q")
    assert_refused(refused, "`--steps` must be at least 5, those of the run in run, got 3.")


def test_a_run_whose_schedule_spans_it_is_not_extended() -> None:
    assert invoke(*QUICK, "--steps", "2", "--schedule", "cosine").exit_code == 0
    before = Path("run/metrics.jsonl").read_bytes()
    words = "`--steps` must stay 2 in run, because the schedule cosine depends on the length"
    assert_refused(invoke(*QUICK, "--steps", "4", "--schedule", "cosine"), words)
    assert_refused(invoke("resume", "run", "--steps", "4"), words, "use a new folder")
    assert Path("run/metrics.jsonl").read_bytes() == before


def test_every_seed_gets_a_folder_of_its_own_by_default() -> None:
    for seed in ("0", "1"):
        assert invoke("train", *SMALL, "-q", "--steps", "1", "--seed", seed).exit_code == 0
    names = sorted(path.name for path in Path("runs").iterdir())
    assert [name.rsplit("-", 1)[0] for name in names] == [
        f"fashion-mnist-slice-logistic-regression-radius-filter-seed-{i}" for i in (0, 1)
    ]


COMMANDS = ("train", "resume", "attack", "reproduce", "report", "list", "data list", "data fetch")


def test_help_of_every_command_shows_its_usage() -> None:
    for command in (*COMMANDS, "data"):
        with case(command):
            words = command.split()
            shown = invoke(*words, "--help", env={"COLUMNS": "160"})
            assert shown.exit_code == 0
            assert f"Usage: holdfast {command}" in shown.output
            assert invoke(*words, "-h", env={"COLUMNS": "160"}).output == shown.output


def test_help_is_not_wider_than_the_terminal_and_breaks_no_sentence() -> None:
    for command in COMMANDS:
        with case(command):
            shown = invoke(*command.split(), "--help", env={"COLUMNS": "80"}).output
            assert max(map(len, shown.splitlines())) <= 80
    # Lines of the docstring are not lines of the help.
    flat = invoke("train", "--help", env={"COLUMNS": "160"}).output
    assert "Under torchrun every rank computes one row." in flat


def test_the_help_shows_the_defaults_that_a_command_really_has() -> None:
    def help_of(command: str) -> str:
        shown = invoke(command, "--help", env={"COLUMNS": "160"}).output
        return " ".join(shown.replace("│", " ").split())

    given = DEFAULTS | {"model": "mlp", "corrupt": 0.4}
    workers = compared_config(given, "mean", "huddle")
    rows = compared_config(given | {"rows": 9}, "mean", "huddle")
    optimizer, of_rows = (optimizers.format(one.optimizer) for one in (workers, rows))
    shown = help_of("attack")
    for words in (
        f"always or never. [default: ({workers.n_rows})]",
        f"Number of steps. [default: ({workers.n_steps}; with --rows {rows.n_steps})]",
        f"adamw. [default: ({optimizer}; with --rows {of_rows})]",
        f"exchange; with --rows {', '.join(RULES)})]",
        "Instead of --workers: slices of one batch. --batch",
    ):
        assert words in shown
    shown = help_of("train")
    assert f"in its folder. [default: ({DEFAULT_STEPS})]" in shown
    assert "per step. [default: (32)]" in shown
    assert "in its folder. [default:" not in help_of("resume")


def test_the_help_says_what_arguments_are() -> None:
    for command, words in (
        ("attack", "by default scaled-flip, little-is-enough, huddle."),
        ("report", "Folders or compact files"),
        ("resume", "Folder of the run."),
        ("reproduce", "Table or figure"),
        ("data fetch", "Data set; see"),
        ("list", "Kind of names"),
    ):
        with case(command):
            shown = invoke(*command.split(), "--help", env={"COLUMNS": "160"}).output
            assert words in shown


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    group = get_command(app)
    assert isinstance(group, click.Group)
    commands = dict(group.commands)
    data = commands.pop("data")
    assert isinstance(data, click.Group)
    for command in (*commands.values(), *data.commands.values()):
        for parameter in command.params:
            (flag, *_) = parameter.opts
            name = flag if flag.startswith("-") else parameter.human_readable_name
            with case(command.name, name):
                assert re.search(rf"{re.escape(name)}\b", page)


def test_help_versions_and_cached_names_load_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    """A real start, in which all commands are asked for their help one after the other."""
    listings()  # fills the cache
    script = f"""
import sys
from typer.testing import CliRunner
from holdfast.lab.cli._app import app
asked = [["--help"], ["--version"], ["list"], *([*c.split(), "--help"] for c in {COMMANDS!r})]
for arguments in asked:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
import holdfast, holdfast.lab
assert "bgmd" in dir(holdfast) and "run" in dir(holdfast.lab)
print(sorted({{"torch", "matplotlib", "jinja2"}} & sys.modules.keys()))
assert holdfast.bgmd and holdfast.lab.Config
print(sorted({{"torch"}} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n['torch']\n", "")


def test_a_damaged_or_old_cache_of_names_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = listings()
    path = Path("cache/holdfast/names.json")
    whole = json.loads(path.read_text())
    for content in ("", "[]", "{", "null", json.dumps({**whole, "names": {"rules": [["a"]]}})):
        with case(content):
            path.write_text(content)
            assert listings() == wanted
            assert json.loads(path.read_text()) == whole
    path.write_text(json.dumps({"source": "0.0.1", "names": {kind: [] for kind in Kind}}))
    assert listings() == wanted
    monkeypatch.setattr(_list, "_source_state", lambda: "another edit")
    path.write_text(path.read_text().replace("mlp", "plm"))
    assert listings() == wanted


def test_a_cache_that_cannot_be_written_is_no_error() -> None:
    Path("cache").write_text("a file")
    assert "bgmd" in names_of(Kind.RULES)


def test_no_listing_shows_markup_of_the_documentation() -> None:
    shown = invoke("list").output
    assert not [mark for mark in (":math:", "`", "\\", "_{", "^") if mark in shown], shown


def test_a_listing_has_all_names_as_text_and_as_json() -> None:
    for kind in Kind:
        with case(kind):
            plain = invoke("list", kind.value).output
            found = json.loads(invoke("list", kind.value, "--json").output)
            assert list(found) == [kind.value]
            entries = found[kind.value]
            assert all(set(entry) == {"name", "arguments", "what"} for entry in entries)
            assert all(entry["what"] and entry["name"] in plain for entry in entries)
    assert list(json.loads(invoke("list", "--json").output)) == [kind.value for kind in Kind]


def test_the_shell_completes_names() -> None:
    for line, offered in (
        ("holdfast train --rule bg", {"bgmd", "bgmd-paper", "bgmd-published"}),
        ("holdfast train --attack non", {"non-finite"}),
        ("holdfast train --scheme ros", {"rosdhb"}),
        ("holdfast attack non", {"non-finite"}),
        ("holdfast attack --rule kr", {"krum"}),
        ("holdfast train --data cif", {"cifar-10"}),
        ("holdfast data fetch mn", {"mnist"}),
        ("holdfast reproduce table2", {"table2"}),
        ("holdfast train --worker-", {"--worker-momentum"}),
        ("holdfast res", {"resume"}),
        ("holdfast list sel", {"selectors"}),
    ):
        with case(line):
            words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
            shown = invoke(env={"_HOLDFAST_COMPLETE": "complete_bash", **words})
            assert set(shown.output.split()) == offered


def test_completion_scripts_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = invoke("--show-completion", "bash")
    assert "_HOLDFAST_COMPLETE=complete_bash" in shown.output
