"""The updates of a rank: from the gradient of one step, or from several local steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from holdfast.checks import check_count, failure
from holdfast.exchange import LocalSteps, WorkerMemory
from holdfast.layout import Layout


class Updates(ABC):
    """The updates of one rank.

    Attributes:
        n_steps: number of steps that the user has made.
    """

    def __init__(self) -> None:
        self.n_steps = 0

    @abstractmethod
    def step(self, memory: WorkerMemory) -> bool:
        """Make one step; returns whether a round is due, whose update is in the memory then."""

    @abstractmethod
    def begin(self) -> None:
        """A round has moved the parameters."""

    @property
    @abstractmethod
    def shared(self) -> Tensor | None:
        """[d] the shared parameters if the rank has others now; None otherwise."""

    @abstractmethod
    def resume(self, shared: Tensor | None, settle: Callable[[], bool]) -> None:
        """Resume with these shared parameters, or those of the model for None.

        Args:
            shared: what :attr:`shared` was.
            settle: makes the parameters those of most ranks; returns whether they were already.
        """


def updates_of(layout: Layout, optimizer: Optimizer, local_steps: int | None) -> Updates:
    """The updates that the optimizer makes of the parameters."""
    if local_steps is None:
        return GradientUpdates(layout, optimizer)
    return LocalUpdates(layout, optimizer, local_steps)


@final
class GradientUpdates(Updates):
    """The learning rate times the gradient, with weight decay, as SGD without momentum has it."""

    def __init__(self, layout: Layout, optimizer: Optimizer) -> None:
        super().__init__()
        self._layout, self._optimizer = layout, optimizer
        self._check()

    def _check(self) -> None:
        optimizer, advice = self._optimizer, "be SGD without momentum, or come with `local_steps`"
        if type(optimizer) is not SGD:
            raise failure("optimizer", advice, type(optimizer).__name__)
        for group in optimizer.param_groups:
            if group["momentum"] != 0:
                raise failure("optimizer", advice, f"momentum={group['momentum']}")

    @torch.no_grad()
    def step(self, memory: WorkerMemory) -> bool:
        self._check()
        groups = {id(p): group for group in self._optimizer.param_groups for p in group["params"]}
        gradients, rates = [], []
        for parameter in self._layout.parameters:
            group, gradient = groups[id(parameter)], parameter.grad
            sign = -1.0 if group["maximize"] else 1.0
            if gradient is None:  # SGD would not even decay it
                gradient = torch.zeros_like(parameter)
            elif gradient.layout is not torch.strided:
                raise failure("model", "have dense gradients (sparse=False)", "a sparse gradient")
            elif group["weight_decay"] != 0:
                gradient = gradient.add(parameter, alpha=sign * group["weight_decay"])
            gradients.append(gradient)
            rates.append(sign * float(group["lr"]))
        memory.add(gradients, scale=rates)
        self.n_steps += 1
        # A scheduler of the learning rate wants to see steps of its optimizer.
        self._optimizer._opt_called = True  # type: ignore[attr-defined]
        return True

    def begin(self) -> None:
        pass

    @property
    def shared(self) -> None:
        return None

    def resume(self, shared: Tensor | None, settle: Callable[[], bool]) -> None:
        settle()


@final
class LocalUpdates(Updates):
    """The difference that `n` steps of the rank's own optimizer make."""

    def __init__(self, layout: Layout, optimizer: Optimizer, n: int) -> None:
        check_count("local_steps", n, at_least=1)
        super().__init__()
        self._layout, self._optimizer, self._n = layout, optimizer, n
        self._local = LocalSteps(layout)

    def step(self, memory: WorkerMemory) -> bool:
        self._optimizer.step()
        self.n_steps += 1
        is_due = self.n_steps % self._n == 0
        if is_due:
            memory.add(self._local.update())
        return is_due

    def begin(self) -> None:
        self._local.begin()

    @property
    def shared(self) -> Tensor | None:
        return self._local.shared if self.n_steps % self._n else None

    @torch.no_grad()
    def resume(self, shared: Tensor | None, settle: Callable[[], bool]) -> None:
        own = self._layout.values()
        if shared is not None:
            self._layout.write_values(shared)
        is_usual = settle()
        self._local.begin()
        if is_usual and shared is not None:
            self._layout.write_values(own)
