"""What a run's record says is true."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import holdfast.lab.training._run as module
from holdfast.lab.config import Config, Threat, config_from_json, hash_of, parse_threat
from holdfast.lab.data import DataSet, load
from holdfast.lab.models import models
from holdfast.lab.optimizers import Sgd
from holdfast.lab.partitions import Shards
from holdfast.lab.records import load_checkpoint, read_record, save_checkpoint
from holdfast.lab.schedules import Cosine
from holdfast.lab.schemes import Rosdhb, SendEverything
from holdfast.lab.training import Batches, evaluate, resume, run, trained_model
from holdfast.lab.training._averaging import averaged
from holdfast.lab.training._experiment import Experiment
from holdfast.lab.training._loop import descent_score, training, trusted_gradient
from holdfast.layout import Layout
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.threats import Adversaries, Backdoor, WrongLabels, attacks
from tests.lab.cases import RUNS, TINY, tiny

CHECKPOINT = "checkpoint.pt"
SECONDS = {"data", "gradient", "attack", "aggregation", "optimizer"}
pytestmark = pytest.mark.usefixtures("data_in_memory")
every_run = pytest.mark.parametrize("config", RUNS.values(), ids=RUNS.keys())


@pytest.fixture
def data() -> DataSet:
    return load("fashion-mnist-slice")


@every_run
def test_the_record_holds_what_it_promises(config: Config, tmp_path: Path) -> None:
    seen: list[Any] = []
    world = torch.get_rng_state()
    record = run(config, tmp_path, watchers=[seen.append], command=["holdfast", "train"])
    assert torch.equal(torch.get_rng_state(), world)
    assert config_from_json(record.config) == config
    assert (record.hash, record.run["command"]) == (hash_of(config), ["holdfast", "train"])
    assert [entry["step"] for entry in record.entries] == [1, 2, 3, 4, 5]
    assert seen == record.entries
    for entry in record.entries:
        step = entry["step"]
        is_evaluated, shows_rows = step in (3, 5), step in (2, 4)
        assert math.isfinite(entry["loss"])
        assert entry["lr"] == config.optimizer.lr
        assert 0.0 <= entry["residual"] <= 1.0
        assert (entry["residual"] > 0) == keeps_some(config)
        assert entry["memory_norm"] >= 0.0
        assert (entry["memory_norm"] > 0) == keeps_some(config)
        # Where a memory that has run away is in all rows, rounding leaves the largest gap.
        assert entry["gap"] is None or 0.0 <= entry["gap"] <= 2.0
        assert isinstance(entry["outcome"], str)
        parts = SECONDS | {"monitor"} | ({"exchange"} if config.workers is not None else set())
        parts -= set() if config.rows_have_owners else {"monitor"}
        assert ("n_bytes" in entry) == (config.workers is not None)
        assert set(entry["seconds"]) == parts | ({"evaluation"} if is_evaluated else set())
        assert all(seconds >= 0 for seconds in entry["seconds"].values())
        assert ("accuracy" in entry) == ("test_loss" in entry) == is_evaluated
        assert ("attack_success" in entry) == (
            is_evaluated and isinstance(config.threat.corruption, Backdoor)
        )
        assert ("rejected" in entry) == shows_rows
        assert ("bad" in entry) == (shows_rows and config.threat.hits_rows)
        if shows_rows:
            assert len(entry["rejected"]) == entry["n_rejected"]
        if "bad" in entry:
            wanted = config.threat.bad_rows(config.n_rows, seed=config.seed, step=step - 1)
            assert entry["bad"] == wanted.nonzero().flatten().tolist()
        if "weights" in entry and "bad_weight" in entry:
            weights = torch.tensor(entry["weights"]).abs()
            assert entry["bad_weight"] == pytest.approx(
                float(weights[entry["bad"]].sum() / weights.sum()), abs=1e-4
            )
    assert record.accuracy == record.entries[-1]["accuracy"]
    assert set(record.seconds_per_step()) - {"monitor", "exchange"} == {*SECONDS, "evaluation"}


def keeps_some(config: Config) -> bool:
    """Whether a step moves only some columns, and the rest is kept for later."""
    if config.workers is None:
        return not config.selector.takes_everything
    return not isinstance(config.workers.scheme, (SendEverything, Rosdhb))


def test_bad_rows_have_little_weight_under_the_median(tmp_path: Path) -> None:
    entries = run(
        tiny("geometric-median", "scaled-flip", Adversaries(n_bad=2), rows_every=1),
        tmp_path / "median",
    ).entries
    for entry in entries:
        assert max(entry["weights"][i] for i in entry["bad"]) < 0.2 * min(
            entry["weights"][i] for i in {*range(6)} - {*entry["bad"]}
        )
    assert len({tuple(entry["bad"]) for entry in entries}) > 1
    for entry in run(
        tiny("mean", "scaled-flip", Adversaries(n_bad=2), rows_every=1), tmp_path / "mean"
    ).entries:
        assert entry["bad_weight"] == pytest.approx(1 / 3)
    fixed = run(tiny("mean", "scaled-flip", rows_every=1), tmp_path / "fixed").entries
    assert len({tuple(entry["bad"]) for entry in fixed}) == 1


def test_rows_that_are_not_finite_are_rejected(tmp_path: Path) -> None:
    for entry in run(tiny("mean", "non-finite", rows_every=1), tmp_path).entries:
        assert entry["rejected"] == entry["bad"]
        assert entry["bad_weight"] == 0.0


@pytest.mark.usefixtures("few_images")
@pytest.mark.parametrize(
    "rule",
    [
        "geometric-median",
        "bgmd",
        *(
            pytest.param(rule, marks=pytest.mark.slow)
            for rule in ("mean", "bgmd-paper", "bgmd-published", "coordinate-median")
        ),
    ],
)
def test_every_attack_comes_to_an_end(rule: str, tmp_path: Path) -> None:
    """Whatever attackers send, a record can hold what came of it."""
    texts = [
        *(name for name in attacks.names if name != "late"),
        "late(start=1) | scaled-flip",
        "scaled-flip(factor=1e30)",
        "hijack(size=1e38)",
        "noisy-rows(deviation=1e38, replace=True)",
        "non-finite(value='inf')",
        "little-is-enough(z='optimized')",
        "inner-product(factor='optimized')",
    ]
    for i, text in enumerate(texts):
        record = run(
            tiny(rule, text, n_steps=3, evaluate_every=99, rows_every=1), tmp_path / str(i)
        )
        assert record.end is not None


def test_a_rule_that_gives_no_row_any_weight(tmp_path: Path) -> None:
    """Trusted reference may drop all rows: those that point away from the trusted gradient."""
    for seed in range(4):
        config = tiny(
            "trusted-reference",
            "scaled-flip",
            Adversaries(n_bad=1),
            n_rows=2,
            row_size=1,
            n_trusted=1,
            seed=seed,
        )
        assert run(config, tmp_path / str(seed)).n_steps == 5


def test_a_run_that_diverges_says_so_and_keeps_a_good_checkpoint(tmp_path: Path) -> None:
    config = tiny(
        "mean", "scaled-flip", model="mlp", optimizer=Sgd(lr=1e8), n_steps=40, evaluate_every=99
    )
    record = run(config, tmp_path, checkpoint_seconds=0)
    assert record.end is not None
    assert record.end["end"] == "diverged"
    assert record.end["step"] == record.n_steps < 40
    assert record.end["reason"].startswith(f"After step {record.n_steps}: `")
    state = load_checkpoint(tmp_path / CHECKPOINT)
    assert 0 < state["step"] <= record.n_steps
    assert all(
        bool(torch.isfinite(parameter).all()) for parameter in state["experiment"]["model"].values()
    )
    assert resume(tmp_path).entries == record.entries
    again = run(config, tmp_path / "again", checkpoint_seconds=30)
    assert (again.end, again.without_times()) == (record.end, record.without_times())


@pytest.mark.usefixtures("few_images")
def test_parameters_that_are_not_finite_at_the_end_are_a_divergence(tmp_path: Path) -> None:
    """The last step itself may be the one that breaks the model."""
    broken = tiny(
        "mean", "scaled-flip", model="mlp", optimizer=Sgd(lr=1e8), n_steps=40, evaluate_every=99
    )
    n_steps = run(broken, tmp_path / "long").n_steps
    for n in range(1, n_steps + 1):
        record = run(replace(broken, n_steps=n), tmp_path / str(n), checkpoint_seconds=0)
        assert record.end is not None
        if record.end["end"] == "finished":
            state = load_checkpoint(tmp_path / str(n) / CHECKPOINT)
            assert all(
                bool(torch.isfinite(parameter).all())
                for parameter in state["experiment"]["model"].values()
            )


def test_most_rows_lost_is_a_divergence(tmp_path: Path) -> None:
    record = run(tiny("geometric-median", "non-finite", Adversaries(n_bad=4)), tmp_path)
    assert record.end is not None
    assert record.end["end"] == "diverged"
    assert "4 of 6" in record.end["reason"]


@pytest.mark.usefixtures("few_images")
@pytest.mark.parametrize("rule", ["geometric-median", "zeno(n_bad=1)", "trusted-reference"])
def test_dropout_depends_on_the_seed_alone(rule: str, tmp_path: Path) -> None:
    """Also that of the losses on trusted samples by which Zeno judges the rows."""
    config = tiny(
        rule, model="lenet", n_rows=4, row_size=2, n_steps=2, n_trusted=8, evaluate_every=99
    )
    before = torch.get_rng_state()
    first = run(config, tmp_path / "1")
    assert torch.equal(torch.get_rng_state(), before)
    torch.default_generator.manual_seed(12345)
    assert run(config, tmp_path / "2").without_times() == first.without_times()


def with_norm() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(6, 10),
    )


def test_judging_a_row_does_not_change_the_model() -> None:
    """Forward passes of a model changed by a bad row must not update the running statistics."""
    model = with_norm()
    images, labels = torch.randn(8, 1, 4, 4), torch.arange(8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    score = descent_score(model, 0.1, images, labels)
    score(torch.full((Layout(model).d,), 1e30))
    score(torch.full((Layout(model).d,), torch.nan))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_a_score_is_how_much_the_loss_falls() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    images, labels = torch.randn(8, 1, 4, 4), torch.arange(8)
    direction = torch.randn(Layout(model).d)
    score = descent_score(model, 0.3, images, labels)
    loss = cross_entropy(model(images), labels)
    weight, bias = direction.split([160, 10])
    with torch.no_grad():
        after = cross_entropy(
            images.flatten(1) @ (model[1].weight - 0.3 * weight.view(10, 16)).T
            + model[1].bias
            - 0.3 * bias,
            labels,
        )
    assert score(direction) == pytest.approx(float(loss.detach() - after), rel=1e-4)
    assert score(torch.zeros_like(direction)) == 0.0
    gradient = trusted_gradient(model, images, labels)
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(gradient, torch.cat([part.flatten() for part in wanted]))


def test_a_direction_that_goes_nowhere_has_score_zero_also_with_dropout() -> None:
    """Both losses are of the same network: other dropped units would differ more than a step."""
    model = with_norm()
    score = descent_score(model, 0.1, torch.randn(8, 1, 4, 4), torch.arange(8))
    assert score(torch.zeros(Layout(model).d)) == pytest.approx(0.0, abs=1e-6)


def slow_predictions(model: nn.Module, data: DataSet, stamp: Backdoor | None = None) -> Tensor:
    """One image at a time, without any of the lab's own functions."""
    model.eval()
    predicted = []
    for image in data.test.images[:, None]:
        pixels = image.float() / 255
        if stamp is not None:
            pixels[:, -stamp.size :, -stamp.size :] = stamp.value
        with torch.no_grad():
            predicted.append(int(model((pixels[None] - data.mean[0]) / data.deviation[0]).argmax()))
    return torch.tensor(predicted)


def agree(one: float, other: float) -> bool:
    """The same share, but for an image or two of 2000 on which the last bit decides."""
    return abs(one - other) <= 2.5 / 1800


def test_evaluation_against_one_image_at_a_time(data: DataSet) -> None:
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(16, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        images, labels = data.train.batch(torch.arange(100 * step, 100 * step + 100))
        optimizer.zero_grad()
        cross_entropy(model(data.normalize(images)), labels).backward()
        optimizer.step()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    backdoor, target = Backdoor(target=2), WrongLabels(labels=3)
    found, stamped, aimed = (
        evaluate(model, data),
        evaluate(model, data, backdoor),
        evaluate(model, data, target),
    )
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    labels, predicted = data.test.labels, slow_predictions(model, data)
    assert 0.3 < found["accuracy"] < 1.0
    assert agree(found["accuracy"], float((predicted == labels).double().mean()))
    with torch.no_grad():
        scores = model(data.normalize(data.test.scaled()))
    assert found["test_loss"] == pytest.approx(float(cross_entropy(scores, labels)), rel=1e-4)
    assert set(found) == {"accuracy", "test_loss"}
    assert (stamped["accuracy"], aimed["accuracy"]) == (found["accuracy"], found["accuracy"])
    assert agree(aimed["attack_success"], float((predicted[labels != 3] == 3).double().mean()))
    predicted = slow_predictions(model, data, backdoor)
    assert agree(stamped["attack_success"], float((predicted[labels != 2] == 2).double().mean()))
    with torch.no_grad():
        nn.init.constant_(model[5].bias, torch.nan)  # type: ignore[arg-type]
    assert evaluate(model, data)["test_loss"] is None


@pytest.mark.parametrize("average", [0.0, 0.7])
@pytest.mark.parametrize("model", ["logistic-regression", "tiny-cnn"])
def test_the_trained_model_is_as_good_as_the_record_says(
    model: str, average: float, data: DataSet, tmp_path: Path
) -> None:
    config = replace(TINY, model=model, optimizer=Sgd(lr=0.1), n_steps=9, average=average)
    record = run(config, tmp_path)
    trained = trained_model(tmp_path)
    assert not trained.training
    assert record.accuracy is not None
    assert agree(
        float((slow_predictions(trained, data) == data.test.labels).double().mean()),
        record.accuracy,
    )


def test_the_average_is_that_of_all_steps_and_changes_none_of_them(tmp_path: Path) -> None:
    config = tiny("mean", "scaled-flip", optimizer=Sgd(lr=0.1), n_steps=4)
    wanted = None
    for n_steps in range(1, 5):
        run(replace(config, n_steps=n_steps), tmp_path / str(n_steps))
        now = flat(trained_model(tmp_path / str(n_steps)))
        wanted = now if wanted is None else 0.75 * wanted + 0.25 * now
    record = run(replace(config, average=0.75), tmp_path / "average")
    assert wanted is not None
    torch.testing.assert_close(flat(trained_model(tmp_path / "average")), wanted)
    assert [entry["loss"] for entry in record.entries] == [
        entry["loss"] for entry in read_record(tmp_path / "4").entries
    ]


def test_an_average_has_the_buffers_of_the_last_step() -> None:
    linear = nn.Linear(3, 4)
    model = nn.Sequential(linear, nn.BatchNorm1d(4))
    average = averaged(model, 0.9)
    for _ in range(3):
        with torch.no_grad():
            model(torch.randn(8, 3))
            linear.weight += 1
        average.update_parameters(model)
    for name, buffer in model.named_buffers():
        assert torch.equal(average.module.get_buffer(name), buffer)
    lag = linear.weight - average.module.get_parameter("0.weight")
    torch.testing.assert_close(lag, torch.full((4, 3), 0.9 + 0.9**2))


def test_a_checkpoint_without_the_average_is_refused(tmp_path: Path) -> None:
    config = replace(TINY, average=0.9)
    run(config, tmp_path)
    path = tmp_path / "checkpoint.pt"
    state = load_checkpoint(path)
    del state["experiment"]["average"]
    save_checkpoint(path, state)
    for read in (trained_model, lambda folder: resume(folder, n_steps=9)):
        with pytest.raises(ValueError, match=r"^`folder` must hold a checkpoint that fits"):
            read(tmp_path)


def flat(model: nn.Module) -> Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def test_reading_a_model_leaves_the_worlds_random_numbers_alone(tmp_path: Path) -> None:
    run(TINY, tmp_path)
    before = torch.get_rng_state()
    trained_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_backdoor_works_on_the_mean_and_the_record_shows_it(tmp_path: Path) -> None:
    config = tiny(
        "mean",
        "backdoor(target=2)",
        Adversaries(bad_fraction=0.3),
        n_steps=60,
        evaluate_every=99,
        optimizer=Sgd(lr=0.1),
    )
    found = run(config, tmp_path / "bad").entries[-1]["attack_success"]
    none = run(
        replace(config, threat=replace(config.threat, adversaries=Adversaries(n_bad=0))),
        tmp_path / "good",
    ).entries[-1]["attack_success"]
    assert found > 0.5 > none
    success = run(
        tiny("mean", "wrong-labels(labels=3)", Adversaries(bad_fraction=0.9), n_steps=20),
        tmp_path / "label",
    ).entries[-1]
    assert success["attack_success"] > 0.5


@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize("redrawn", [False, True])
def test_a_corruption_hits_the_right_samples(whole_rows: bool, redrawn: bool) -> None:
    threat = parse_threat(
        "backdoor(target=9)", Adversaries(bad_fraction=0.5, redrawn=redrawn), whole_rows=whole_rows
    )
    images, labels = torch.full((24, 1, 8, 8), 0.5), torch.zeros(24, dtype=torch.int64)
    hits = []
    for step in range(4):
        bad_rows = threat.bad_rows(6, seed=0, step=step)
        indices = torch.randperm(24)
        bad_samples = threat.bad_samples(indices, bad_rows, n_train=24, seed=0, step=step)
        got, classes = threat.corrupt(images, labels, bad_samples, seed=0, step=step)
        hit = (got != images).flatten(1).any(1)
        assert torch.equal(hit, classes == 9)
        assert torch.equal(hit, bad_samples)
        assert int(hit.sum()) == 12
        assert int(bad_rows.sum()) == (3 if whole_rows else 0)
        if whole_rows:
            assert torch.equal(hit.view(6, 4), bad_rows[:, None].expand(6, 4))
            hits.append(tuple(bad_rows.tolist()))
        else:
            assert any(0 < int(hit[4 * row : 4 * row + 4].sum()) < 4 for row in range(6))
            hits.append(
                tuple(hit[indices.argsort()].tolist())
            )  # by image: the same ones, wherever they stand
    assert len(set(hits)) == (4 if redrawn else 1)


def test_attackers_speak_after_the_momentum_of_workers(data: DataSet) -> None:
    """A lie takes the place of a bad client's momentum, and leaves no trace in it."""
    attacked = tiny("mean", "scaled-flip", worker_momentum=0.9, partition=Shards(n_shards=12))
    momenta = []
    for config in (attacked, replace(attacked, threat=Threat())):
        experiment = Experiment(config, data, torch.device("cpu"))
        next(training(experiment, 0))
        assert experiment.worker_momentum is not None
        momenta.append(experiment.worker_momentum.state_dict()["momentum"])
    assert torch.equal(*momenta)


def test_the_first_step_is_the_one_by_hand(data: DataSet, tmp_path: Path) -> None:
    """Samples, loss, gradient, attack and step against a plain loop over the rows."""
    config = tiny(
        "mean",
        "scaled-flip(factor=1.0)",
        n_steps=1,
        optimizer=Sgd(lr=0.5),
        partition=Shards(n_shards=12),
        schedule=Cosine(),
    )
    record = run(config, tmp_path)
    model = models[config.model](generator=stream(config.seed, "model"))
    batches = Batches(
        data.train.labels, config.partition, n_rows=6, row_size=4, n_trusted=0, seed=config.seed
    )
    bad = config.threat.bad_rows(6, seed=config.seed, step=0)
    losses, rows = [], []
    for row in batches.indices(0).split(4):
        loss = cross_entropy(
            model((data.train.images[row, None] / 255 - data.mean[0]) / data.deviation[0]),
            data.train.labels[row],
        )
        rows.append(
            torch.cat(
                [part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]
            )
        )
        losses.append(float(loss.detach()))
    matrix = torch.stack(rows)
    matrix[bad] *= -1
    assert record.entries[0]["loss"] == pytest.approx(
        torch.tensor(losses)[~bad].mean().item(), rel=1e-5
    )
    parameters = torch.nn.utils.parameters_to_vector(trained_model(tmp_path).parameters())
    torch.testing.assert_close(
        parameters, torch.nn.utils.parameters_to_vector(model.parameters()) - 0.5 * matrix.mean(0)
    )


def test_checkpoints_come_by_the_clock(tmp_path: Path) -> None:
    found = []

    def look(entry: Any) -> None:
        found.append(
            load_checkpoint(tmp_path / CHECKPOINT)["step"]
            if (tmp_path / CHECKPOINT).exists()
            else 0
        )

    run(TINY, tmp_path, checkpoint_seconds=0, watchers=[look])
    assert found == [0, 1, 2, 3, 4]
    for seconds in (-1, math.nan, math.inf, None, "1"):
        with pytest.raises(
            ValueError, match=r"^`checkpoint_seconds` must be a finite number of at least 0, got "
        ):
            run(TINY, tmp_path, checkpoint_seconds=seconds)  # type: ignore[arg-type]


def test_diagnostics_that_are_not_finite_are_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = RobustOptimizer.step

    def with_broken_diagnostics(self: RobustOptimizer) -> None:
        step(self)
        assert self.result is not None
        assert self.result.weights is not None
        weights = self.result.weights.index_fill(0, torch.tensor([1]), torch.nan)
        aggregate = replace(self.result.aggregate, weights=weights, gap=math.inf)
        self.result = replace(
            self.result, aggregate=aggregate, residual=math.nan, carried_norm=-math.inf
        )

    config = tiny("geometric-median", "scaled-flip", rows_every=1)
    whole = run(config, tmp_path / "whole")
    monkeypatch.setattr(RobustOptimizer, "step", with_broken_diagnostics)
    run(config, tmp_path / "broken", stop=iter([False, True]).__next__, tensorboard=True)
    record = resume(tmp_path / "broken", tensorboard=True)
    assert record.end == whole.end
    for found, wanted in zip(record.without_times(), whole.without_times(), strict=True):
        weights = [*wanted["weights"][:1], None, *wanted["weights"][2:]]
        nulls = {"gap": None, "residual": None, "memory_norm": None, "bad_weight": None}
        assert found == wanted | nulls | {"weights": weights}
    assert record.bad_weight is None


def test_a_run_that_fails_in_its_first_step_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("parts that do not fit together")

    started: list[int] = []
    monkeypatch.setattr(module, "training", fail)
    with pytest.raises(ValueError, match="do not fit together"):
        run(TINY, tmp_path / "run", on_start=started.append)
    assert started == [0]
    assert not (tmp_path / "run").exists()


def test_an_experiment_that_cannot_be_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^`n_shards` must be a multiple of 6"):
        run(replace(TINY, partition=Shards(n_shards=80)), tmp_path / "run")
    with pytest.raises(ValueError, match=r"^`n_trusted` must leave some of the 6000"):
        run(replace(TINY, n_trusted=6000), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_of_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    """As after a divergence in the first half minute."""
    record = run(
        tiny(
            "mean", "scaled-flip", model="mlp", optimizer=Sgd(lr=1e8), n_steps=40, evaluate_every=99
        ),
        tmp_path,
    )
    assert record.end is not None
    assert record.end["end"] == "diverged"
    with pytest.raises((FileNotFoundError, ValueError), match=r"^`folder` must hold a checkpoint"):
        trained_model(tmp_path)


def test_tensorboard(tmp_path: Path) -> None:
    """TensorBoard's reader finds every entry, also of a run that was killed and resumed."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    from holdfast.lab.training import TensorBoard

    config = tiny("geometric-median", "backdoor", Adversaries(n_bad=2), whole_rows=True)
    watcher = TensorBoard(tmp_path)
    run(config, tmp_path, watchers=[watcher], stop=lambda: read_record(tmp_path).n_steps == 2)
    watcher.close()
    watcher = TensorBoard(tmp_path)

    def killed(entry: Any) -> None:
        if entry["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path, watchers=[watcher, killed])
    watcher.close()
    watcher = TensorBoard(tmp_path)
    record = resume(tmp_path, watchers=[watcher])
    watcher.close()
    watcher.close()
    reader = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"histograms": 0})
    reader.Reload()
    for name in (
        "loss",
        "lr",
        "accuracy",
        "test_loss",
        "attack_success",
        "n_rejected",
        "residual",
        "memory_norm",
        "gap",
        "bad_weight",
    ):
        wanted = [(entry["step"], entry[name]) for entry in record.entries if name in entry]
        found = [(event.step, event.value) for event in reader.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in wanted]
        assert [value for _, value in found] == pytest.approx(
            [value for _, value in wanted], rel=1e-6
        )
    assert len(reader.Scalars("seconds/gradient")) == 5
    assert [event.step for event in reader.Histograms("weights")] == [2, 4]
