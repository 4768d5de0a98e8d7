"""The state of all workers of a run, and of those who receive what they send."""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.checks import failure
from holdfast.exchange import LocalSteps, OuterStep
from holdfast.lab.config import Config, Workers
from holdfast.layout import Layout


@final
class WorkerRounds:
    """Scheme, outer step and local optimizers of a run with workers.

    Args:
        config: the configuration.
        workers: its workers.
        model: the model, whose parameters are the shared ones.
    """

    def __init__(self, config: Config, workers: Workers, model: nn.Module) -> None:
        layout = Layout(model)
        start = workers.scheme.start
        self.scheme = start(layout, config.rule, n=config.n_rows, seed=config.seed)
        self.outer = OuterStep(layout, lr=workers.outer_lr, momentum=workers.outer_momentum)
        self.local: LocalOptimizers | None = None
        if workers.local_steps is not None:
            self.local = LocalOptimizers(config, workers.local_steps, model, layout)

    def state_dict(self) -> dict[str, Any]:
        """What goes on from round to round."""
        local = None if self.local is None else self.local.state_dict()
        return {
            "scheme": self.scheme.state_dict(),
            "outer": self.outer.state_dict(),
            "local": local,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly; the parameters must have been restored before."""
        self.scheme.load_state_dict(state["scheme"])
        self.outer.load_state_dict(state["outer"])
        if self.local is not None:
            self.local.load_state_dict(state["local"])


@final
class LocalOptimizers:
    """The optimizers of all workers, each with a state of its own, on one copy of the parameters.

    Args:
        config: the configuration.
        n_steps: steps between two rounds.
        model: the model, without buffers.
        layout: its parameters.
    """

    def __init__(self, config: Config, n_steps: int, model: nn.Module, layout: Layout) -> None:
        if any(True for _ in model.buffers()):
            needed = "have no running statistics, which workers with local steps would not share"
            raise failure("model", needed, config.model)
        self._model, self._n_steps, self._layout = model, n_steps, layout
        build = config.optimizer.build
        self._optimizers = [build(layout.parameters) for _ in range(config.n_rows)]  # type: ignore[arg-type]

    def updates(self, inputs: Tensor, labels: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """[n, d] the updates and [n] the mean losses of all workers; the parameters stay."""
        n = len(self._optimizers)
        local, found, losses = LocalSteps(self._layout), [], []
        shares = zip(self._optimizers, inputs.chunk(n), labels.chunk(n), strict=True)
        for optimizer, own_inputs, own_labels in shares:
            for group in optimizer.param_groups:
                group["lr"] = lr
            losses.append(self._train(optimizer, own_inputs, own_labels))
            found.append(local.update())
        self._model.zero_grad()
        return torch.stack(found), torch.stack(losses)

    def _train(self, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> Tensor:
        total = torch.zeros((), device=inputs.device)
        parts = zip(inputs.chunk(self._n_steps), labels.chunk(self._n_steps), strict=True)
        for some_inputs, some_labels in parts:
            optimizer.zero_grad()
            loss = cross_entropy(self._model(some_inputs), some_labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total / self._n_steps

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of all optimizers."""
        return [optimizer.state_dict() for optimizer in self._optimizers]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Restore the states of all optimizers."""
        for optimizer, saved in zip(self._optimizers, state, strict=True):
            optimizer.load_state_dict(saved)
