"""The base of steps: from rows to the direction of one training step."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from holdfast._typing import Rate, TensorOrTensors
from holdfast.aggregators import Aggregate, Aggregator, StepArguments, as_rule
from holdfast.checks import check_generator, check_instance, check_lr, failure
from holdfast.errors import NonFiniteMemoryError
from holdfast.geometry import DenseRows, Rows, length
from holdfast.robust_step._step_result import StepResult
from holdfast.robust_step._step_state import check_step_state
from holdfast.seeds import stream
from holdfast.selectors import Selector

LARGEST = 1e37
"""Limit of the memory, in units of gradients.

A learning rate so small that more would be carried counts as zero.
"""


class Step(ABC):
    """Turns rows into the direction of one training step, with a memory between steps.

    The step owns everything that changes: the memory, the generator and the number of steps. A call
    that raises leaves the step unchanged.

    Attributes:
        rule: the rule.
        selector: chooses the columns that a step moves.
        generator: source of random numbers.
        n_steps: the number of steps made.
    """

    n_state_dimensions: ClassVar[int]
    """Dimensions of the memory: 1 for [d], 2 for [n, d], 0 for none."""

    def __init__(
        self, rule: Aggregator | str, selector: Selector, generator: torch.Generator | None
    ) -> None:
        self.rule = as_rule(rule)
        self.selector = selector
        self.generator = stream(0, "robust step") if generator is None else generator
        check_instance("selector", selector, Selector)
        check_generator(self.generator)
        if self.generator.device.type != "cpu":
            requirement = "be on the CPU, where blocks are drawn"
            raise failure("generator", requirement, self.generator.device)
        self.n_steps = 0
        self._state: Tensor | None = None
        self._state_norm = 0.0

    @property
    @abstractmethod
    def needs_lr(self) -> bool:
        """Whether a call must pass the learning rate."""

    @abstractmethod
    def _step(
        self, rows: Rows, rate: Rate, arguments: StepArguments
    ) -> tuple[StepResult, Tensor | None]:
        """The result, without the norm of the memory, and the next state."""

    @torch.no_grad()
    def __call__(
        self,
        rows: Rows | TensorOrTensors,
        *,
        lr: Rate | None = None,
        **arguments: Unpack[StepArguments],
    ) -> StepResult:
        """Make one step.

        Args:
            rows: [n, d] tensor, list of [n, ...] tensors (one per parameter), or any `Rows`.
            lr: the learning rate with which the direction will be used, a number or a tensor [d],
                for steps with a memory in units of parameters. Where it is zero, the memory does
                not change and is not part of the direction.
            **arguments: `row_weights`, `reference` and `score`, for rules that accept them.
        """
        rows = rows if isinstance(rows, Rows) else DenseRows(rows)
        rate = self._rate(lr, rows)
        self._check_state_fits(rows)
        with self._all_or_nothing(rows):
            result, state = self._step(rows, rate, arguments)
            norm = 0.0 if state is None else length(state)
            if not norm < float("inf"):
                raise NonFiniteMemoryError(
                    f"`{self}` must have a finite memory, got a norm of {norm}."
                )
            # The largest entry shows it without a copy, which a sum in float64 would make.
            if not bool(torch.isfinite(torch.linalg.vector_norm(result.direction, torch.inf))):
                requirement = f"fit {rows.dtype}, got entries beyond its range"
                raise NonFiniteMemoryError(f"`direction` must {requirement}.")
        self._state, self._state_norm = state, norm
        self.n_steps += 1
        return result.carrying(norm)

    def backward(
        self,
        rows: Rows,
        *,
        lr: Rate | None = None,
        **arguments: Unpack[StepArguments],
    ) -> StepResult:
        """Make one step and add its direction to the parameters' `.grad`, as a backward pass does.

        The rows must have a layout; the other arguments are those of a call.
        """
        layout = rows.layout if isinstance(rows, Rows) else None
        if layout is None:
            requirement = "have a layout (use `Layout(model).rows(...)`)"
            raise failure("rows", requirement, type(rows).__name__)
        result = self(rows, lr=lr, **arguments)
        layout.write_gradient(result.direction)
        return result

    @contextmanager
    def _all_or_nothing(self, rows: Rows) -> Iterator[None]:
        """Restore the generator if an error is raised; no autocast in between."""
        drawn = self.generator.get_state()
        try:
            with torch.autocast(rows.device.type, enabled=False):
                yield
        except BaseException:
            self.generator.set_state(drawn)
            raise

    def _apply_rule(self, rows: Rows, arguments: StepArguments) -> Aggregate:
        """The rule on the rows, with the step's generator if the rule draws."""
        if "generator" in self.rule.needs:
            return self.rule.aggregate(rows, **arguments, generator=self.generator)
        return self.rule.aggregate(rows, **arguments)

    def _rate(self, lr: Rate | None, rows: Rows) -> Rate:
        """The learning rate in use: a number, or a tensor [d] with an entry above zero."""
        rate = 1.0 if lr is None else check_lr(lr, rows.d)
        if not self.needs_lr:
            return 1.0
        if lr is None:
            reason = f"because {self} has a memory in units of parameters"
            raise failure("lr", f"be given, {reason}", None)
        smallest = max(1.0, self._state_norm) / LARGEST
        if isinstance(rate, float):
            return rate if rate > smallest else 0.0
        large = rate > smallest
        return rate.where(large, 0.0).to(rows.device) if bool(large.any()) else 0.0

    def _check_state_fits(self, rows: Rows) -> None:
        if self._state is None:
            return
        wanted = (rows.d,) if self.n_state_dimensions == 1 else (rows.n, rows.d)
        if tuple(self._state.shape) != wanted:
            what = "columns" if self.n_state_dimensions == 1 else "rows and columns"
            requirement = f"have the {what} of the memory, {tuple(self._state.shape)}"
            raise failure("rows", requirement, wanted)
        self._state = self._state.to(rows.device)

    def state_dict(self) -> dict[str, Any]:
        """The memory, the state of the generator, and the number of steps."""
        carried = None if self._state is None else self._state.clone()
        generator = self.generator.get_state()
        return {"carried": carried, "generator": generator, "n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume exactly from `state`; one that does not fit changes nothing."""
        carried, generator = check_step_state(state, self.n_state_dimensions, str(self))
        if carried is not None and self._state is not None and carried.shape != self._state.shape:
            requirement = f"have the shape {tuple(self._state.shape)} of the memory"
            raise failure("state['carried']", requirement, tuple(carried.shape))
        self.generator.set_state(generator)
        self._state = None if carried is None else carried.detach().clone()
        self._state_norm = 0.0 if carried is None else length(carried)
        self.n_steps = state["n_steps"]
