"""What a run is made of, and its state."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.exchange import WorkerMomentum
from holdfast.lab.config import Config
from holdfast.lab.data import DataSet
from holdfast.lab.own_models import architecture
from holdfast.lab.training._averaging import averaged
from holdfast.lab.training._batches import Batches
from holdfast.lab.training._directions import DRIFT_SAMPLES, bad_parameters, check_directions
from holdfast.lab.training._worker_rounds import WorkerRounds
from holdfast.monitor import Monitor
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches

if TYPE_CHECKING:
    from holdfast.distributed import RankRows, Ranks


@final
class Experiment:
    """Model, source, optimizer and batches of a configuration, and the state of its training.

    Args:
        config: the configuration.
        data: its data set.
        device: where to compute.
        ranks: the ranks that compute one row each, all of which hold this experiment.
    """

    def __init__(
        self,
        config: Config,
        data: DataSet,
        device: torch.device,
        *,
        ranks: "Ranks | None" = None,
    ) -> None:
        check_directions(config.threat.attack)
        self.config = config
        self.device, self.ranks = device, ranks
        self.data = data.to(device)
        self.model = self._initial_model()
        self.average = averaged(self.model, config.average) if config.average else None
        self.source = self._source()
        inner = config.optimizer.build(self.model.parameters())
        self.optimizer = RobustOptimizer(inner, config.step())
        # A rank owns its row, unless somebody else is made bad at every step.
        has_owners = ranks is not None and not config.threat.hits_rows
        is_watched = config.rows_have_owners or has_owners or config.workers is not None
        self.monitor = Monitor(config.n_rows) if is_watched else None
        beta = config.worker_momentum
        self.worker_momentum = WorkerMomentum(beta=beta) if beta else None
        self.batches = Batches(
            data.train.labels,
            config.partition,
            n_rows=config.n_rows,
            row_size=config.batch_size // config.n_rows,
            n_trusted=config.n_trusted,
            seed=config.seed,
            has_owners=config.workers is not None,
        )
        workers = config.workers
        self.rounds = None if workers is None else WorkerRounds(config, workers, self.model)
        self.attack_state: Tensor | None = None
        self.direction: Tensor | None = None

    def _initial_model(self) -> nn.Module:
        config = self.config
        sizes: dict[str, Any] = {"shape": self.data.shape, "n_classes": self.data.n_classes}
        model = architecture(config.model)(**sizes, generator=stream(config.seed, "model"))
        if len(self.data.shape) != 3:
            return model.to(self.device)
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    @cached_property
    def bad_parameters(self) -> Tensor:
        """[d] those of a bad model, to which attackers may want to lead this one.

        They depend on the configuration only, so a resumed run finds the same.
        """

        def indices(step: int) -> Tensor:
            return self.batches.direction_indices(step, DRIFT_SAMPLES).to(self.device)

        return bad_parameters(self._initial_model(), self.data, indices)

    def _source(self) -> "MicroBatches | RankRows":
        if self.ranks is None:
            return MicroBatches(self.model, nn.CrossEntropyLoss(), n_rows=self.config.n_rows)
        from holdfast.distributed import RankRows  # takes seconds to load, which few runs need

        if self.config.n_rows != self.ranks.n:
            requirement = f"be {self.ranks.n}, the number of ranks, each of which has one row"
            raise failure("n_rows", requirement, self.config.n_rows)
        return RankRows(self.model, nn.CrossEntropyLoss(), self.ranks)

    @property
    def tested_model(self) -> nn.Module:
        """The model that is evaluated: the mean over steps, if there is one."""
        return self.model if self.average is None else self.average

    @property
    def is_first(self) -> bool:
        """Whether this is the only process, or rank 0, which keeps the record."""
        return self.ranks is None or self.ranks.is_first

    @property
    def lr(self) -> float:
        """The current learning rate."""
        return float(self.optimizer.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """The state that changes from step to step.

        Generators are not part of it: random numbers depend only on seed and step. The exception is
        the robust step, which keeps its generator in its own state.
        """
        momentum = self.worker_momentum
        return {
            "model": self.model.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "worker_momentum": None if momentum is None else momentum.state_dict(),
            "monitor": None if self.monitor is None else self.monitor.state_dict(),
            "rounds": None if self.rounds is None else self.rounds.state_dict(),
            "attack_state": self.attack_state,
            "direction": self.direction,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly."""
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.worker_momentum is not None:
            self.worker_momentum.load_state_dict(state["worker_momentum"])
        # Under another number of processes, rows may have been without a monitor.
        if self.monitor is not None and state["monitor"] is not None:
            self.monitor.load_state_dict(state["monitor"])
        if self.rounds is not None:
            self.rounds.load_state_dict(state["rounds"])
        for name in ("attack_state", "direction"):
            setattr(self, name, None if state[name] is None else state[name].to(self.device))
