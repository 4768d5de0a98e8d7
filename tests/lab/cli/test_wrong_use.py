"""Wrong options are refused in one sentence that tells what to do, before anything is written."""

import sys
from pathlib import Path

import pytest
import torch

from tests.lab.cli.commands import SMALL, assert_refused, case, invoke

TRAIN = ["train", *SMALL, "--quiet"]
BAD = ["--corrupt", "0.25"]


UNKNOWN_NAMES: list[tuple[list[str], str]] = [
    (["--rule", "krumm(n_bad=1)"], "krum"),
    (["--rule", "bgdm"], "bgmd"),
    (["--rule", "mixin(n_bad=1) | mean"], "mixing"),
    (["--rule", "mixing(n_bad=1) | maen"], "mean"),
    (["--attack", "scaledflip", *BAD], "scaled-flip"),
    (["--attack", "bit-flip", *BAD], "ieee-bit-flips"),
    (["--attack", "wrong-lables", *BAD], "wrong-labels"),
    (["--model", "lenett"], "lenet"),
    (["--data", "mnits"], "mnist"),
    (["--partition", "shard"], "shards"),
    (["--schedule", "cosin"], "cosine"),
    (["--optimizer", "sdg"], "sgd"),
    (["--selector", "top-nrom"], "top-norm"),
    (["--memory", "maen"], "mean"),
]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    for arguments, near in UNKNOWN_NAMES:
        with case(arguments):
            assert_refused(invoke(*TRAIN, *arguments), f"did you mean {near!r}?")


WORKERS = ["train", "--model", "logistic-regression", "--batch", "2", "--threads", "1", "--quiet"]
IMPOSSIBLE_WORKERS: list[tuple[list[str], str]] = [
    (["--workers", "8", "--rows", "8"], "one of `--rows` and `--workers`"),
    (["--workers", "0"], "--workers"),
    (["--send", "0.02"], "`--send` must be given with --workers"),
    (["--scheme", "rosdhb"], "`--scheme` must be given with --workers"),
    (["--local-steps", "2"], "`--local-steps` must be given with --workers"),
    (["--absent", "0.1"], "`--absent` must be given with --workers"),
    (["--lie", "huge", *BAD], "workers"),
    (["--workers", "8", "--lie", "huge"], "`--corrupt` must be given with --lie"),
    (["--workers", "8", "--lie", "huge", *BAD], "be given with workers who report"),
    (["--workers", "8", "--send", "0.02", "--lie", "hugh", *BAD], "did you mean 'huge'?"),
    (["--workers", "8", "--scheme", "rosdbh"], "did you mean 'rosdhb'?"),
    (["--workers", "8", "--send", "0.02", "--scheme", "rosdhb"], "`--send` and `--scheme`"),
    (["--workers", "8", "--send", "0"], "`--send` must be in (0, 1], got 0.0"),
    (["--workers", "8", "--send", "0.0001"], "be enough for one of the 124 tiles, got 0.0001"),
    (["--workers", "8", "--send", "0.02", "--optimizer", "adam"], "local_steps"),
    (["--workers", "8", "--send", "0.02", "--optimizer", "sgd(momentum=0.9)"], "local_steps"),
    (["--workers", "8", "--send", "0.02", "--rule", "bgmd"], "take everything with workers"),
    (["--workers", "8", "--rule", "zeno(n_bad=1)", "--trusted", "9"], "no trusted samples"),
    (["--workers", "8", "--scheme", "scatter-mean", "--rule", "krum(n_bad=1)"], "be mean"),
    (["--workers", "8", "--absent", "1"], "[0, 1)"),
    (["--workers", "8", "--absent", "0.99"], "leave at least one honest worker"),
    (["--workers", "8", "--outer-momentum", "1"], "[0, 1)"),
    (["--workers", "8", "--outer-lr", "0"], "above 0"),
]


def test_workers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for arguments, words in IMPOSSIBLE_WORKERS:
        with case(arguments):
            assert_refused(invoke(*WORKERS, *arguments), words)
    assert not (tmp_path / "runs").exists()


TYPOS: list[tuple[list[str], str, str]] = [
    # What is typed, what the sentence begins with, and what it suggests.
    (["trian"], "`holdfast` must be followed by one of", "train"),
    (["data", "fetsh"], "`holdfast data` must be followed by one of", "fetch"),
    (["data", "fetch", "mnits"], "`name` must be one of", "mnist"),
    (["list", "rulse"], "`kind` must be one of", "rules"),
    (["list", "rule"], "`kind` must be one of", "rules"),
    (["train", "--stesp", "3"], "`holdfast train` must be given its own options", "--steps"),
    (["train", "--learning-rate", "3"], "`holdfast train` must be given its own", "--lr"),
    (["train", "--decay", "3"], "`holdfast train` must be given its own", "--weight-decay"),
    (["attack", "--job", "2"], "`holdfast attack` must be given its own options", "--jobs"),
    (["report", "--formt", "svg"], "`holdfast report` must be given its own", "--format"),
    (["report", "--format", "pgn"], "`--format` must be one of", "png"),
    (["reproduce", "table2", "--size", "quik"], "`--size` must be one of", "quick"),
    (["reproduce", "table2", "--variant", "papr"], "`--variant` must be one of", "paper"),
    (["reproduce", "tabel2"], "`recipe` must be one of", "table2"),
    (["attack", "scaled-flp"], "`--attack` must be one of", "scaled-flip"),
    (["attack", "--rule", "krumm"], "`--rule` must be one of", "krum"),
    (["attack", "--rule", "exchnge"], "`--rule` must be one of", "exchange"),
    ([*TRAIN, "--rule", "geometric-medain"], "`--rule` must be one of", "geometric-median"),
    ([*TRAIN, "--rule", "mixing(nbad=3)|mean"], "`mixing` must be given only", "n_bad"),
    ([*TRAIN, "--rule", "mixing(n_bad=1)|krum(nbad=3)"], "`krum` must be given only", "n_bad"),
    ([*TRAIN, "--rule", "bgmd(fracton=0.1)"], "`bgmd` must be given only", "fraction"),
    ([*TRAIN, "--rule", "bgmd(rule='krumm(n_bad=1)')"], "`--rule` must be one of", "krum"),
    ([*TRAIN, "--selector", "top-norm(fractoin=.1)"], "`top-norm` must be given", "fraction"),
    ([*TRAIN, "--decay", "1"], "`holdfast train` must be given its own", "--weight-decay"),
    ([*TRAIN, "--memory", "row(unit='gradient')"], "`row` must be given only", "units"),
    ([*TRAIN, "--optimizer", "sgd(learning_rate=1)"], "`sgd` must be given only", "lr"),
    ([*TRAIN, "--optimizer", "adam(decay=1)"], "`adam` must be given only", "weight_decay"),
    ([*TRAIN, "--schedule", "exponential(deacy=1)"], "`exponential` must be given", "decay"),
    ([*TRAIN, "--partition", "dirichlet(alfa=1)"], "`dirichlet` must be given only", "alpha"),
    ([*TRAIN, "--attack", "late(strt=5)|huddle", *BAD], "`late` must be given only", "start"),
    ([*TRAIN, "--attack", "backdoor(taget=1)", *BAD], "`backdoor` must be given", "target"),
    ([*WORKERS, "--workers", "8", "--scheme", "rosdhb(sent=1)"], "`rosdhb` must be", "send"),
    ([*WORKERS, "--workers", "8", "--send", "1", "--lie", "hugee", *BAD], "`--lie`", "huge"),
]


def test_every_typo_is_answered_in_one_sentence_with_the_nearest_name() -> None:
    for arguments, start, near in TYPOS:
        with case(arguments):
            result = invoke(*arguments)
            assert_refused(result, f"(did you mean {near!r}?)")
            (sentence,) = result.stderr.splitlines()
            assert sentence.startswith(f"Error: {start}")
            assert sentence.endswith(".")


MISUSED: list[tuple[list[str], str]] = [
    (["resume"], "`holdfast resume` must be given RUN; see holdfast resume -h."),
    (["train", "--steps"], "`--steps` must be followed by a value; see holdfast"),
    (["train", "--quiet=3"], "`--quiet` must stand alone; see holdfast"),
    (["train", "--steps", "many"], "`--steps` must be a whole number, got 'many'."),
    (["train", "--steps", "0"], "`--steps` must be at least 1, got 0."),
    (["train", "--lr", "fast"], "`--lr` must be a number, got 'fast'."),
    (["train", "--corrupt", "2"], "`--corrupt` must be at least 0 and at most 1, got 2.0."),
    (["train", "--absent", "2"], "`--absent` must be at most 1, got 2.0."),
    (["train", "x", "y"], "`holdfast train` must be given no more arguments, got x y; see"),
    (["reproduce", "table2", "--known", "away"], "`--known` must exist, got 'away'."),
]


def test_options_that_cannot_be_read_are_refused_in_the_same_form() -> None:
    for arguments, words in MISUSED:
        with case(arguments):
            result = invoke(*arguments)
            assert_refused(result, f"Error: {words}")
            assert result.stderr.count("\n") == 1


IMPOSSIBLE: list[tuple[list[str], str]] = [
    (["--corrupt", "0.2"], "`--corrupt` must be given with --attack"),
    (["--attack", "scaled-flip"], "`--corrupt` must be given with --attack"),
    (["--fixed"], "`--fixed` must be given with --attack"),
    (["--whole-rows"], "`--whole-rows` must be given with --attack"),
    (["--attack", "scaled-flip", *BAD, "--whole-rows"], "corruption"),
    (
        ["--steps", "2", "--epochs", "1"],
        "At most one of `--steps` and `--epochs` may be given, got both.",
    ),
    (["--json"], "`--quiet` must be given without --json"),
    (["--rule", "krum(n_bad=2"], "'krum(n_bad=2'"),
    (["--rule", "krum(n_bad=x)"], "name=value, got (n_bad=x)"),
    (["--rule", "krum(2)"], "name=value"),
    (["--rule", "krum"], "krum(n_bad=...)"),
    (["--rule", ""], "got ''"),
    (["--rule", "|"], "got '|'"),
    (["--rule", "mean | mean"], "must stand last"),
    (["--rule", "mixing(n_bad=1)"], "must be followed by"),
    (["--rule", "ümläut"], "'ümläut'"),
    (["--rule", "../../x"], "'../../x'"),
    (["--rule", "\x00"], r"'\x00'"),
    (["--rule", "[/]"], "'[/]'"),
    (["--rule", "[red]x"], "'[red]x'"),
    (["--rule", "x\\[/]"], "'x\\\\[/]'"),
    (["--rule", "a" * 5000], "rule"),
    (["--rule", "mean|" * 2000], "rule"),
    (["--rule", f"krum(n_bad={'(' * 300})"], "name=value"),
    (["--rule", f"krum(n_bad={'9' * 5000})"], "name=value"),
    (["--rule", "krum(n_bad=5)"], "at least 13 rows"),
    (["--rule", "zeno(n_bad=2)"], "trusted samples"),
    (["--rule", "bgmd(fraction=2)"], "`fraction` must be in (0, 1], got 2"),
    (["--attack", "", *BAD], "got ''"),
    (["--attack", "../../x", *BAD], "'../../x'"),
    (["--attack", "scaled-flip(factor=1e400)", *BAD], "finite"),
    (["--attack", "scaled-flip", "--corrupt", "nan"], "nan"),
    (["--attack", "scaled-flip", "--corrupt", "-0.1"], "--corrupt"),
    (["--rows", "0"], "--rows"),
    (["--batch", "0"], "--batch"),
    (["--seed", "-1"], "--seed"),
    (["--steps", "0"], "--steps"),
    (["--threads", "0"], "--threads"),
    (["--evaluate-every", "0"], "--evaluate-every"),
    (["--checkpoint-seconds", "nan"], "finite"),
    (["--checkpoint-seconds", "-1"], "--checkpoint-seconds"),
    (["--lr", "0"], "`--lr` must be a finite number above 0, got 0.0"),
    (["--lr", "-1"], "above 0, got -1.0"),
    (["--lr", "nan"], "above 0, got nan"),
    (["--weight-decay", "-1"], "at least 0, got -1.0"),
    (["--device", "nonsense"], "`--device` must be one that this machine has, got nonsense"),
    (["--device", ""], "--device"),
    (["--partition", "shards", "--rows", "7"], "multiple of 7"),
    (["--partition", "shards(n_shards=0)"], "at least 1"),
    (["--partition", "dirichlet(alpha=0)"], "above 0"),
    (["--worker-momentum", "0.9"], "client"),
    (["--worker-momentum", "1", "--partition", "shards"], "[0, 1)"),
    (["--trusted", "-5"], "at least 0"),
    (["--trusted", "6000"], "6000"),
    (["--optimizer", "sgd(nesterov=true)"], "momentum"),
    (["--schedule", "exponential(decay=2)"], "decay"),
    (["stray"], "stray"),
]


def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    for arguments, words in IMPOSSIBLE:
        with case(arguments):
            assert_refused(invoke(*TRAIN, *arguments), words)
            assert {path.name for path in tmp_path.iterdir()} <= {"cache"}


UNSUITABLE = [
    ["--attack", "wrong-labels(n_classes=300)", *BAD],
    ["--attack", "wrong-labels(n_classes=3)", *BAD],
    ["--attack", "wrong-labels(labels=99)", *BAD],
    ["--attack", "backdoor(target=12)", *BAD],
    ["--attack", "backdoor(size=100)", *BAD],
    ["--attack", "ieee-bit-flips(bits=(99,))", *BAD],
    ["--attack", "scaled-flip", "--corrupt", "1"],
    ["--rule", "majority-vote(group_size=3)"],
]


def test_what_the_data_or_the_rows_forbid_is_refused_and_leaves_no_run(tmp_path: Path) -> None:
    for arguments in UNSUITABLE:
        with case(arguments):
            assert_refused(invoke(*TRAIN, "--steps", "2", *arguments))
            assert list(tmp_path.glob("runs/*")) == []


def test_a_folder_that_is_a_file_is_refused_before_anything_is_printed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for command in (["train", *SMALL], ["attack", *SMALL], ["reproduce", "toy"]):
        for folder, is_it in (("file", "a file"), ("file/run", "in file, a file")):
            with case(command, folder):
                result = invoke(*command, "--folder", folder)
                words = f"be a folder or a new name, got {folder}, which is {is_it}."
                assert_refused(result, f"`--folder` must {words}")
                assert result.stdout == ""
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_tensorboard_is_told_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = invoke("train", *SMALL, "--steps", "1", "--tensorboard")
    assert_refused(result, "`tensorboard` must be installed", "[tensorboard]'")
    assert result.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_more_rows_than_samples_are_refused() -> None:
    assert_refused(invoke(*TRAIN, "--rows", "20000000", "--batch", "1"), "`--rows times --batch`")


@pytest.mark.parametrize("lr", ["1e30", "1e39", "1e300"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_rate_beyond_all_measure_is_refused_or_diverges(optimizer: str, lr: str) -> None:
    result = invoke(*TRAIN, "--steps", "5", "--rule", "mean", "--optimizer", optimizer, "--lr", lr)
    assert result.exit_code in (0, 2, 3)


def test_a_penalty_beyond_all_measure_is_refused_or_diverges() -> None:
    assert invoke(*TRAIN, "--steps", "5", "--weight-decay", "1e300").exit_code in (2, 3)


@pytest.mark.parametrize("epochs", ["nan", "inf", "0", "1e300"])
def test_epochs_that_are_no_number_of_passes_are_refused(epochs: str) -> None:
    assert_refused(invoke(*TRAIN, "--epochs", epochs, "--offline", "--data", "mnist"), "--epochs")


@pytest.mark.parametrize("device", ["cuda", "mps", "meta"])
def test_a_device_that_cannot_train_here_is_refused(device: str) -> None:
    if device != "meta" and torch.get_device_module(device).is_available():
        pytest.skip(f"this machine has {device}")
    result = invoke(*TRAIN, "--steps", "1", "--device", device)
    assert_refused(result, "--device")
    assert len(result.stderr) < 400


def test_a_text_in_an_error_is_shown_as_it_was_typed() -> None:
    assert_refused(invoke(*TRAIN, "--rule", ":smile:"), "':smile:'")


def test_an_empty_folder_does_not_put_the_run_between_the_users_files(tmp_path: Path) -> None:
    assert_refused(invoke(*TRAIN, "--steps", "1", "--folder", ""), "--folder")
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "RUN"), (["nowhere"], "nowhere"), (["[/]"], "[/]"), (["\\[/]"], "\\[/]")],
)
def test_resuming_nothing_is_wrong_use(arguments: list[str], words: str) -> None:
    assert_refused(invoke("resume", *arguments), words)
