from dataclasses import dataclass, field, fields
from typing import final

import torch

from holdfast.aggregators import Aggregator, RadiusFilter
from holdfast.checks import check_count, check_enough_rows, check_instance, check_share, failure
from holdfast.lab.config._threat import Threat
from holdfast.lab.config._workers import Workers
from holdfast.lab.data import DataDescription, OwnData, data_sets
from holdfast.lab.models import models
from holdfast.lab.optimizers import OptimizerSpec, Sgd
from holdfast.lab.own_models import is_own_model
from holdfast.lab.partitions import Partition, Shuffled
from holdfast.lab.schedules import Constant, Schedule
from holdfast.registry import unknown_name
from holdfast.robust_step import Memory, RobustStep, SelectFirstStep, Step
from holdfast.seeds import stream
from holdfast.selectors import Everything, Selector


@final
@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that determines the result of a run.

    Equal configurations give equal records, except timings, on the same machine and device with the
    same number of threads and version of torch (on accelerators if kernels are deterministic).

    Args:
        data: name of the data set; with `own_data` any name.
        model: name of the architecture, or a function as `"package.module:function"`; see
            :func:`holdfast.lab.own_models.architecture`.
        partition: assignment of samples to rows.
        n_rows: rows per step.
        row_size: samples per row.
        rule: the rule.
        selector: the columns that a step moves.
        memory: what a step that selects before it aggregates does with the other columns; None for
            a step that aggregates and then delivers.
        worker_momentum: averaging of each row over time before the rule, in [0, 1); 0 is none. For
            partitions with clients.
        threat: attack and corruption, and who is bad.
        optimizer: makes a step from a direction.
        schedule: of the learning rate.
        average: weight b of the past in an exponential mean of the parameters over steps, in
            [0, 1); 0 is none. The mean is tested and returned; training is not affected. For runs
            of many more than 1 / (1 - b) steps, because it begins with the first one.
        n_steps: number of steps.
        n_trusted: training samples kept aside and known to be good, for rules that need them.
        evaluate_every: steps between evaluations on the test set; the last step always has one.
        rows_every: steps between records of the weight of each row and of who was bad.
        seed: root of all random numbers.
        workers: how each row's owner sends its updates; None if rows are parts of one batch, or
            are sent whole at every step. A step is then a round of all workers. The partition
            `Shuffled` gives every worker an equal share of the samples, dealt out at random.
        own_data: the data set, if it is the user's; see :func:`holdfast.lab.data.own_data`.

    Example:
        >>> config = Config(n_rows=8, n_steps=100)
        >>> config.batch_size
        128
    """

    data: str = "fashion-mnist-slice"
    model: str = "lenet"
    partition: Partition = field(default_factory=Shuffled)
    n_rows: int = 32
    row_size: int = 16
    rule: Aggregator = field(default_factory=RadiusFilter)
    selector: Selector = field(default_factory=Everything)
    memory: Memory | None = None
    worker_momentum: float = 0.0
    threat: Threat = field(default_factory=Threat)
    optimizer: OptimizerSpec = field(default_factory=lambda: Sgd(lr=0.01, momentum=0.9))
    schedule: Schedule = field(default_factory=Constant)
    average: float = 0.0
    n_steps: int = 600
    n_trusted: int = 0
    evaluate_every: int = 100
    rows_every: int = 10
    seed: int = 0
    workers: Workers | None = None
    own_data: OwnData | None = None

    def __post_init__(self) -> None:
        if self.own_data is not None:
            check_instance("own_data", self.own_data, OwnData)
            check_instance("data", self.data, str)
        elif not isinstance(self.data, str) or self.data not in data_sets:
            raise unknown_name("data", data_sets, self.data)
        # A function is imported by the run that trains it, not by everyone who reads a record.
        if not isinstance(self.model, str) or not (
            self.model in models or is_own_model(self.model)
        ):
            raise unknown_name("model", models, self.model)
        for entry in fields(self):
            if isinstance(entry.type, type) and entry.type not in (str, int, float):
                check_instance(entry.name, getattr(self, entry.name), entry.type)
        if self.memory is not None:
            check_instance("memory", self.memory, Memory)
        for name in ("n_rows", "row_size", "n_steps", "evaluate_every", "rows_every"):
            check_count(name, getattr(self, name), at_least=1)
        check_count("n_trusted", self.n_trusted)
        check_count("seed", self.seed)
        check_share("worker_momentum", self.worker_momentum, below=1.0)
        check_share("average", self.average, below=1.0)
        check_enough_rows(self.n_rows, self.rule.n_needed, self.rule)
        self._check_size()
        self._check_threat()
        if self.workers is not None:
            check_instance("workers", self.workers, Workers)
            self._check_workers(self.workers)
        elif self.threat.lie is not None:
            raise failure("lie", "be given with workers, who report", self.threat.lie)
        elif self.worker_momentum and not self.partition.is_fixed:
            needed = "give every row its own client for worker momentum"
            raise failure("partition", needed, self.partition)
        if self.needs_trust and not self.n_trusted:
            needed = f"be at least 1, because {self.rule!r} compares with trusted samples"
            raise failure("n_trusted", needed, 0)
        self.step()  # refuses parts that do not fit together

    def _check_size(self) -> None:
        n_train = self.data_set.n_train
        if self.n_trusted >= n_train:
            needed = f"leave some of the {n_train} training samples to the rows"
            raise failure("n_trusted", needed, self.n_trusted)
        if self.n_rows * self.row_size > n_train:
            needed = f"be at most {n_train:,}, the training samples of {self.data}"
            raise failure("n_rows * row_size", needed, f"{self.n_rows * self.row_size:,}")

    def _check_threat(self) -> None:
        """Check that the threat is possible with these rows and classes."""
        threat, n_classes = self.threat, self.n_classes
        if threat.hits_rows:
            if threat.adversaries.count(self.n_rows) == self.n_rows:
                got = f"{self.n_rows} of {self.n_rows} bad"
                raise failure("adversaries", "leave at least one row honest", got)
        elif threat.corruption is not None:
            # Fixed identities are drawn among all training samples.
            n_train = self.data_set.n_train
            threat.adversaries.count(self.batch_size if threat.adversaries.redrawn else n_train)
            own = self.own_data
            is_image = own is None or (own.are_bytes and len(own.shape) == 3)
            if not is_image and not threat.corruption.is_of_labels:
                needed = (
                    f"be one of rows or of labels, because {self.data} holds no images of bytes"
                )
                raise failure("attack", needed, threat.corruption)
        if getattr(threat.corruption, "n_classes", n_classes) != n_classes:
            needed = f"have n_classes={n_classes}, the number of classes of {self.data}"
            raise failure("attack", needed, threat.corruption)
        target = getattr(threat.corruption, "target", None)
        if target is not None and target >= n_classes:
            needed = f"be below {n_classes}, the number of classes of {self.data}"
            raise failure("target", needed, target)

    def _check_workers(self, workers: Workers) -> None:
        """Check that rows with owners can be what the other fields say."""
        if workers.local_steps is None and not self.optimizer.is_plain:
            needed = "be sgd without momentum, unless workers make local_steps with their own"
            raise failure("optimizer", needed, self.optimizer)
        if self.threat.hits_rows and self.threat.adversaries.redrawn:
            raise failure("adversaries", "be the same workers in every round", self.threat)
        if self.threat.lie is not None and not workers.scheme.has_reports:
            raise failure("lie", "be given with workers who report", workers.scheme)
        if self.needs_trust:
            raise failure("rule", "need no trusted samples with workers", self.rule)
        if self.memory is not None or not self.selector.takes_everything:
            got = self.selector if self.memory is None else self.memory
            raise failure("selector", "take everything with workers, who choose the block", got)
        n_bad = self.threat.adversaries.count(self.n_rows) if self.threat.hits_rows else 0
        n_absent = workers.n_absent(self.n_rows)
        if n_bad + n_absent >= self.n_rows:
            whole = f"{n_bad} bad and {n_absent} absent of {self.n_rows}"
            raise failure("absent", "leave at least one honest worker", whole)

    @property
    def data_set(self) -> DataDescription | OwnData:
        """Sizes and classes of the data set."""
        return data_sets[self.data] if self.own_data is None else self.own_data

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.data_set.classes)

    @property
    def batch_size(self) -> int:
        """Samples per step."""
        local_steps = 1 if self.workers is None else self.workers.local_steps or 1
        return self.n_rows * self.row_size * local_steps

    @property
    def n_epochs(self) -> float:
        """Passes over the training samples that are not kept aside."""
        return self.n_steps * self.batch_size / (self.data_set.n_train - self.n_trusted)

    @property
    def needs_trust(self) -> bool:
        """Whether the rule needs a gradient or a loss on trusted samples."""
        return bool(self.rule.needs & {"reference", "score"})

    @property
    def rows_have_owners(self) -> bool:
        """Whether a row that is bad now is bad because of who it belongs to.

        With clients or with fixed adversaries, row i has the same owner at every step.
        """
        if self.threat.hits_rows:
            return not self.threat.adversaries.redrawn
        return self.partition.is_fixed or self.workers is not None

    def step(self) -> Step:
        """A new step with these parts."""
        return step_of(
            rule=self.rule,
            selector=self.selector,
            memory=self.memory,
            generator=stream(self.seed, "step"),
        )


def step_of(
    *,
    rule: Aggregator,
    generator: torch.Generator,
    selector: Selector | None = None,
    memory: Memory | None = None,
) -> Step:
    """A step that aggregates and delivers, or with a memory one that selects first."""
    if memory is None:
        return RobustStep(rule, selector=selector, generator=generator)
    selector = Everything() if selector is None else selector
    return SelectFirstStep(rule, selector=selector, memory=memory, generator=generator)
