"""`holdfast train`."""

from pathlib import Path

from holdfast.checks import failure
from holdfast.lab.cli import _options as options
from holdfast.lab.cli._build import check_data_name, config_of, n_steps_of, optimizer_of, threat_of
from holdfast.lab.cli._execute import execute
from holdfast.lab.cli._exit_codes import reports_errors
from holdfast.lab.config import run_name
from holdfast.lab.data import data_sets

DEFAULT_STEPS = 300


@reports_errors
def train(
    data: options.Data = "fashion-mnist-slice",
    model: options.Model = "lenet",
    rule: options.Rule = "bgmd",
    selector: options.SelectorText = None,
    memory: options.MemoryText = None,
    worker_momentum: options.WorkerMomentumShare = 0.0,
    trusted: options.Trusted = 0,
    attack: options.AttackText = None,
    corrupt: options.Corrupt = None,
    fixed: options.Fixed = False,
    whole_rows: options.WholeRows = False,
    rows: options.NRows = 32,
    batch: options.RowSize = 16,
    partition: options.PartitionText = "shuffled",
    steps: options.NSteps = None,
    epochs: options.NEpochs = None,
    optimizer: options.OptimizerText = "sgd(momentum=0.9)",
    lr: options.Lr = None,
    weight_decay: options.WeightDecay = None,
    schedule: options.ScheduleText = "constant",
    seed: options.Seed = 0,
    evaluate_every: options.EvaluateEvery = 100,
    rows_every: options.RowsEvery = 10,
    folder: options.Folder = None,
    data_dir: options.DataDir = None,
    offline: options.Offline = False,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    checkpoint_seconds: options.CheckpointSeconds = 30.0,
    tensorboard: options.WantsTensorBoard = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a model, with some of the rows against it if you like, and keep a record.

    The same command again takes up what is there: a run that was stopped goes on, one that ended is shown.
    """
    check_data_name(data)
    if folder is not None and not folder.strip():
        raise failure("--folder", "have a name", repr(folder))
    config = config_of(
        data=data,
        model=model,
        rule=rule,
        selector=selector,
        memory=memory,
        worker_momentum=worker_momentum,
        n_trusted=trusted,
        threat=threat_of(attack, corrupt, fixed=fixed, whole_rows=whole_rows),
        n_rows=rows,
        row_size=batch,
        partition=partition,
        n_steps=n_steps_of(
            steps,
            epochs,
            n_samples=data_sets[data].n_train - trusted,
            batch_size=rows * batch,
            default=DEFAULT_STEPS,
        ),
        optimizer=optimizer_of(optimizer, lr, weight_decay),
        schedule=schedule,
        seed=seed,
        evaluate_every=evaluate_every,
        rows_every=rows_every,
    )
    execute(
        config,
        Path("runs") / run_name(config) if folder is None else Path(folder),
        data_dir=data_dir,
        offline=offline,
        device=device,
        threads=threads,
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
        quiet=quiet,
        json=json,
    )
