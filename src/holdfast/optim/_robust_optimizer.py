"""An optimizer whose gradients come from rows."""

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
    """Any torch optimizer, with a robust step in front of it: `optimizer.step(rows)`.

    The step turns the rows into a direction and adds it to `p.grad`; the optimizer then does what it always does. Momentum, Adam's moments and
    weight decay work on the direction and on the parameters: they stay outside the aggregation, where no row can reach them. The learning rate
    that the step's memory needs is read from the parameter groups, so schedulers may change it. With momentum or Adam, and with rates
    that go to zero, give the memory `units="gradient"`.

    It is an `Optimizer` itself: schedulers, `torch.nn.utils.clip_grad_norm_`, hooks and gradient scalers take it like any other. `state_dict` holds the
    optimizer's state and the step's: memory, generator, number of steps. It consists of tensors, numbers and containers, so
    `torch.load(..., weights_only=True)` reads it.

    Where something stands between gradient and step (clipping, a gradient scaler), use :meth:`backward` and then `step()`. A `step()` without either is
    refused: a gradient that came another way is not robust.

    Args:
        optimizer: any torch optimizer whose `step` needs no closure.
        step: the robust step.

    Attributes:
        optimizer: the optimizer inside.
        robust_step: the step.
        result: what the last robust step did; None before the first, and after rows that were skipped.

    Example:
        >>> from holdfast import bgmd
        >>> from holdfast.sources import MicroBatches
        >>> model = torch.nn.Linear(4, 2)
        >>> source = MicroBatches(model, torch.nn.CrossEntropyLoss(), n_rows=5)
        >>> optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), bgmd(fraction=0.5))
        >>> optimizer.zero_grad()
        >>> optimizer.step(source(torch.randn(20, 4), torch.zeros(20, dtype=torch.int64)))
        >>> optimizer.result.rejected.sum().item()
        0
    """

    def __init__(self, optimizer: Optimizer, step: RobustStep) -> None:
        # Not the base class's: parameters, groups and state belong to the optimizer inside.
        check_instance("optimizer", optimizer, Optimizer)
        check_instance("step", step, RobustStep)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise failure(
                "optimizer",
                "be one whose step needs no closure, because rows are made once a step",
                "LBFGS",
            )
        self.optimizer = optimizer
        self.robust_step = step
        self.result: StepResult | None = None
        self._has_direction = False

    def __repr__(self) -> str:
        return f"RobustOptimizer({self.optimizer!r}, {self.robust_step!r})"

    _step_supports_amp_scaling = False
    """A gradient scaler unscales the gradients itself, also for fused optimizers, which would otherwise do it in their own step."""

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet
            raise AttributeError(name)
        return getattr(self.optimizer, name)  # state, defaults, hooks

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the optimizer inside."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    def __getstate__(self) -> dict[str, Any]:
        # A scheduler puts a `step` of its own on the object, which is bound to this very one.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear every `p.grad`."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the optimizer inside."""
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
            rows: rows that carry their layout, as all sources make them.
            scaler: a gradient scaler, if the source has it, too. The direction is scaled like a gradient that it expects. If most rows
                overflowed, the gradient is infinite, so that `scaler.step` skips the step as it does in any loop; the memory stays as it is, and
                the result is None.
            row_weights: [n] how much each row counts, for rules that take it.
            reference: [d] a trusted or previous direction, for rules that take it.
            score: judges a direction on trusted data, for rules that take it.
        """
        layout = rows.layout if isinstance(rows, Rows) else None
        if not isinstance(layout, Layout):
            raise failure(
                "rows",
                "carry a layout (sources, and `Layout(model).rows(...)`, make such rows)",
                type(rows).__name__,
            )
        self._check_holds(layout)
        lr = self._lr(layout) if self.robust_step.memory.needs_lr else None
        self.result = None
        if scaler is None or not scaler.is_enabled():
            self.result = self.robust_step.backward(
                rows, lr=lr, row_weights=row_weights, reference=reference, score=score
            )
            self._has_direction = True
            return self.result
        try:
            self.result = self.robust_step(
                rows, lr=lr, row_weights=row_weights, reference=reference, score=score
            )
            scale = scaler.scale(torch.ones((), device=rows.device))
            direction = self.result.direction * scale.to(self.result.direction)
        except NonFiniteRowsError:
            direction = torch.full((rows.d,), torch.inf, dtype=rows.dtype, device=rows.device)
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
        """Make the robust step on the rows, if there are any, and then the optimizer's.

        Args:
            rows: rows that carry their layout; None if `p.grad` holds what it should, after :meth:`backward`.
            closure: never called, because rows are made once a step; frameworks hand one over all the same.
            row_weights: as in :meth:`backward`.
            reference: as in :meth:`backward`.
            score: as in :meth:`backward`.
        """
        if rows is not None:
            self.backward(rows, row_weights=row_weights, reference=reference, score=score)
        if not self._has_direction:
            raise failure(
                "rows",
                "be given to `step`, or to `backward` before it: a plain gradient is not robust",
                None,
            )
        self._has_direction = False
        self.optimizer.step()

    def _check_holds(self, layout: Layout) -> None:
        held = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        unknown = [
            name
            for name, p in zip(layout.names, layout.parameters, strict=True)
            if id(p) not in held
        ]
        if unknown:
            raise failure(
                "rows",
                "be of parameters that the optimizer holds",
                f"{unknown[0]!r}, which it does not",
            )

    def _lr(self, layout: Layout) -> float | Tensor:
        """The learning rate of the rows' columns: one number, or [d] where groups differ."""
        if not all("lr" in group for group in self.param_groups):
            raise failure(
                "optimizer",
                f"have a learning rate in every group, which {self.robust_step.memory!r} needs",
                "none",
            )
        rates = {id(p): float(group["lr"]) for group in self.param_groups for p in group["params"]}
        found = [rates[id(parameter)] for parameter in layout.parameters]
        if len(set(found)) == 1:
            return found[0]
        sizes = torch.tensor(layout.sizes, device=layout.parameters[0].device)
        return torch.tensor(found, dtype=torch.float32, device=sizes.device).repeat_interleave(
            sizes
        )

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, and under "robust_step" the step's: memory, generator, number of steps."""
        return {**self.optimizer.state_dict(), KEY: self.robust_step.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, bit for bit."""
        if not isinstance(state_dict, dict) or KEY not in state_dict:
            raise failure(
                "state_dict",
                f"hold {KEY!r} (a plain optimizer's state goes to `.optimizer.load_state_dict`)",
                sorted(map(str, state_dict))
                if isinstance(state_dict, dict)
                else type(state_dict).__name__,
            )
        before = self.robust_step.state_dict()
        self.robust_step.load_state_dict(state_dict[KEY])
        try:
            self.optimizer.load_state_dict(
                {key: value for key, value in state_dict.items() if key != KEY}
            )
        except BaseException:
            self.robust_step.load_state_dict(before)
            raise
