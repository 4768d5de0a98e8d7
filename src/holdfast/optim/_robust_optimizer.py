"""An optimizer with gradients from rows."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from holdfast._typing import Score
from holdfast.checks import check_instance, failure
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import Rows
from holdfast.layout import Layout
from holdfast.robust_step import RobustStep, StepResult

KEY = "robust_step"


@final
class RobustOptimizer(Optimizer):
    """Any torch optimizer with a robust step before it: `optimizer.step(rows)`.

    The step turns the rows into a direction and adds it to `p.grad`; then the optimizer makes its
    own step. Momentum, Adam's moments and weight decay work on the direction and the parameters,
    after the aggregation, where no row can reach them. The learning rate for the step's memory is
    read from the parameter groups, so schedulers may change it. With momentum or Adam, and with
    rates that go to zero, use a memory with `units="gradient"`.

    It is an `Optimizer`: schedulers, `torch.nn.utils.clip_grad_norm_`, hooks and gradient scalers
    accept it. `state_dict` holds the states of the optimizer and of the step (memory, generator,
    number of steps) as tensors, numbers and containers, which `torch.load(..., weights_only=True)`
    can read.

    To clip gradients or to use a gradient scaler, call :meth:`backward` and then `step()`. A
    `step()` without either is refused: a plain gradient is not robust.

    Args:
        optimizer: any torch optimizer whose `step` needs no closure.
        step: the robust step.

    Attributes:
        optimizer: the inner optimizer.
        robust_step: the step.
        result: the result of the last robust step; None before the first, and after a skipped step.

    Example:
        >>> from holdfast import bgmd
        >>> from holdfast.sources import MicroBatches
        >>> model = torch.nn.Linear(4, 2)
        >>> source = MicroBatches(model, torch.nn.CrossEntropyLoss(), n_rows=5)
        >>> inner = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = RobustOptimizer(inner, bgmd(fraction=0.5))
        >>> optimizer.zero_grad()
        >>> optimizer.step(source(torch.randn(20, 4), torch.zeros(20, dtype=torch.int64)))
        >>> optimizer.result.rejected.sum().item()
        0
    """

    # A gradient scaler must unscale the gradients itself, also for fused optimizers, which would
    # otherwise unscale them in their own step.
    _step_supports_amp_scaling = False

    def __init__(self, optimizer: Optimizer, step: RobustStep) -> None:
        # No super().__init__(): parameters, groups and state belong to the inner optimizer.
        check_instance("optimizer", optimizer, Optimizer)
        check_instance("step", step, RobustStep)
        if isinstance(optimizer, torch.optim.LBFGS):
            requirement = "be one whose step needs no closure, because rows are made once per step"
            raise failure("optimizer", requirement, "LBFGS")
        self.optimizer = optimizer
        self.robust_step = step
        self.result: StepResult | None = None
        self._has_direction = False

    def __repr__(self) -> str:
        return f"RobustOptimizer({self.optimizer!r}, {self.robust_step!r})"

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # before __init__, for example while unpickling
            raise AttributeError(name)
        return getattr(self.optimizer, name)  # state, defaults, hooks

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the inner optimizer."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    def __getstate__(self) -> dict[str, Any]:
        # Schedulers replace `step` on the instance by a wrapper that is bound to this instance.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear every `p.grad`."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the inner optimizer."""
        self.optimizer.add_param_group(param_group)

    def backward(
        self,
        rows: Rows,
        *,
        scaler: torch.amp.GradScaler | None = None,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
    ) -> StepResult | None:
        """Make the robust step and add its direction to `p.grad`.

        Args:
            rows: rows that carry their layout, as those of all sources do.
            scaler: the gradient scaler of the source. The direction is scaled as the scaler
                expects. If most rows overflowed, the gradient is infinite, so that `scaler.step`
                skips the step as in any loop; the memory does not change, and the result is None.
            row_weights: [n] weight of each row, for rules that take it.
            reference: [d] a trusted or previous direction, for rules that take it.
            score: rates a direction on trusted data, for rules that take it.
        """
        layout = rows.layout if isinstance(rows, Rows) else None
        if not isinstance(layout, Layout):
            requirement = "carry a layout (sources, and `Layout(model).rows(...)`, make such rows)"
            raise failure("rows", requirement, type(rows).__name__)
        self._check_holds(layout)
        lr = self._lr(layout) if self.robust_step.memory.needs_lr else None
        self.result = None
        scaler = scaler if scaler is not None and scaler.is_enabled() else None
        try:
            self.result = self.robust_step(
                rows, lr=lr, row_weights=row_weights, reference=reference, score=score
            )
            direction = self.result.direction
        except NonFiniteRowsError:
            if scaler is None:
                raise
            direction = torch.full((rows.d,), torch.inf, dtype=rows.dtype, device=rows.device)
        if scaler is not None:
            direction = direction * scaler.scale(torch.ones((), device=rows.device)).to(direction)
        layout.write_gradient(direction)
        self._has_direction = True
        return self.result

    def step(  # type: ignore[override]
        self,
        rows: Rows | None = None,
        closure: Callable[[], float] | None = None,
        *,
        row_weights: Tensor | None = None,
        reference: Tensor | None = None,
        score: Score | None = None,
    ) -> None:
        """Make the robust step on the rows, if given, and then the optimizer's step.

        Args:
            rows: rows that carry their layout; None after :meth:`backward`.
            closure: never called, because rows are made once per step; accepted because frameworks
                pass one.
            row_weights: as in :meth:`backward`.
            reference: as in :meth:`backward`.
            score: as in :meth:`backward`.
        """
        if rows is not None:
            self.backward(rows, row_weights=row_weights, reference=reference, score=score)
        if not self._has_direction:
            requirement = "be given to `step`, or to `backward` before it"
            raise failure("rows", f"{requirement}: a plain gradient is not robust", None)
        self._has_direction = False
        self.optimizer.step()

    def _check_holds(self, layout: Layout) -> None:
        held = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        for name, parameter in zip(layout.names, layout.parameters, strict=True):
            if id(parameter) not in held:
                requirement = "be of parameters that the optimizer holds"
                raise failure("rows", requirement, f"{name!r}, which it does not")

    def _lr(self, layout: Layout) -> float | Tensor:
        """The learning rate of the columns: one number, or [d] if groups differ."""
        if not all("lr" in group for group in self.param_groups):
            requirement = "have a learning rate in every group"
            needed_by = f"(needed by {self.robust_step.memory!r})"
            raise failure("optimizer", f"{requirement} {needed_by}", "none")
        rates = {id(p): float(group["lr"]) for group in self.param_groups for p in group["params"]}
        found = [rates[id(parameter)] for parameter in layout.parameters]
        if len(set(found)) == 1:
            return found[0]
        device = layout.parameters[0].device
        sizes = torch.tensor(layout.sizes, device=device)
        return torch.tensor(found, dtype=torch.float32, device=device).repeat_interleave(sizes)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, with the state of the step under "robust_step"."""
        return {**self.optimizer.state_dict(), KEY: self.robust_step.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume bit for bit from `state_dict`; a state that does not fit changes nothing."""
        if not isinstance(state_dict, dict) or KEY not in state_dict:
            requirement = f"hold {KEY!r} (load a plain state with `.optimizer.load_state_dict`)"
            is_dict = isinstance(state_dict, dict)
            got = sorted(map(str, state_dict)) if is_dict else type(state_dict).__name__
            raise failure("state_dict", requirement, got)
        before = self.robust_step.state_dict()
        self.robust_step.load_state_dict(state_dict[KEY])
        try:
            inner = {key: value for key, value in state_dict.items() if key != KEY}
            self.optimizer.load_state_dict(inner)
        except BaseException:
            self.robust_step.load_state_dict(before)
            raise
