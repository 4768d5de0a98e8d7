"""All that a run has in memory."""

from typing import Any, final

import torch
from torch import Tensor, nn

from holdfast.lab.config import Config
from holdfast.lab.data import DataSet
from holdfast.lab.models import models
from holdfast.lab.training._batches import Batches
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches, WorkerMomentum


@final
class Experiment:
    """Model, source, optimizer and batches of a configuration, and what of them changes from step to step.

    Args:
        config: the configuration.
        data: the data set it names.
        device: where to compute.
    """

    def __init__(self, config: Config, data: DataSet, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.data = data.to(device)
        model = models[config.model](shape=data.shape, generator=stream(config.seed, "model"))
        self.model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.source = MicroBatches(self.model, nn.CrossEntropyLoss(), n_rows=config.n_rows)
        self.optimizer = RobustOptimizer(
            config.optimizer.build(self.model.parameters()), config.step()
        )
        self.worker_momentum = (
            WorkerMomentum(beta=config.worker_momentum) if config.worker_momentum else None
        )
        self.batches = Batches(
            data.train.labels,
            config.partition,
            n_rows=config.n_rows,
            row_size=config.row_size,
            n_trusted=config.n_trusted,
            seed=config.seed,
        )
        self.attack_state: Tensor | None = None
        self.direction: Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """What changes from step to step.

        Random numbers do not, because they depend on seed and step alone; but for the robust step's, whose generator is in its own state.
        """
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "worker_momentum": None
            if self.worker_momentum is None
            else self.worker_momentum.state_dict(),
            "attack_state": self.attack_state,
            "direction": self.direction,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken, bit for bit."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._restore_strides()
        if self.worker_momentum is not None:
            self.worker_momentum.load_state_dict(state["worker_momentum"])
        self.attack_state = _on(self.device, state["attack_state"])
        self.direction = _on(self.device, state["direction"])

    def _restore_strides(self) -> None:
        """Lay the optimizer's moments out in memory as their parameters are, because other strides may round otherwise."""
        for parameter, moments in self.optimizer.optimizer.state.items():
            for name, moment in moments.items():
                if isinstance(moment, Tensor) and moment.shape == parameter.shape:
                    moments[name] = torch.empty_like(parameter, dtype=moment.dtype).copy_(moment)


def _on(device: torch.device, tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
