"""An optimizer with gradients from rows."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from holdfast._typing import Rate
from holdfast.aggregators import Aggregator, StepArguments
from holdfast.checks import check_instance, failure, kind_of
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import Rows, length
from holdfast.layout import Layout
from holdfast.monitor import Monitor
from holdfast.optim._pending_update import PendingUpdate
from holdfast.robust_step import RobustStep, Step, StepResult, preset, presets

KEY = "holdfast"

log = logging.getLogger("holdfast")


@final
class RobustOptimizer(Optimizer):
    """Wraps a torch optimizer with a robust rule: `optimizer.step(rows)`.

    The rule combines the rows into one gradient and adds it to `p.grad`; then the inner optimizer
    makes its step. Momentum, Adam's moments and weight decay work on the aggregate and the
    parameters, which single rows cannot affect.

    A step with a block, such as `bgmd()`, delivers after the optimizer: the optimizer gets the
    whole aggregate, and its update of the parameters is added to the pending update. The step's
    selector chooses a block of the pending update; this block is applied, the rest stays pending.
    (A :class:`~holdfast.robust_step.SelectFirstStep` gives the optimizer the direction on its
    block, as the paper does; it reads the learning rate from the parameter groups.)

    It is an `Optimizer`: schedulers, `torch.nn.utils.clip_grad_norm_`, hooks and gradient scalers
    accept it. `state_dict` holds the states of the optimizer and of the step and what is pending as
    tensors, numbers and containers, which `torch.load(..., weights_only=True)` can read.

    To clip gradients or to use a gradient scaler, call :meth:`backward` and then `step()`. A
    `step()` without rows and without `backward` raises an error, because a plain gradient is not
    robust. Two rows do not tell which is bad: with too few rows to resist one, a warning is logged.

    Args:
        optimizer: any torch optimizer whose `step` needs no closure.
        rule: a rule, the name of one such as `"covariance-filter"`, or a step such as `bgmd()`.
        monitor: observes the rows over the steps and lists suspect rows; row i must have the same
            owner (a data source, a client, a device) at every step. Steps that are skipped because
            most rows overflowed are not observed.

    Attributes:
        optimizer: the inner optimizer.
        monitor: the monitor or None; `monitor.suspects()` lists the suspects.
        robust_step: the step; a rule becomes a step without a block.
        result: the result of the last step; None before the first, and after a skipped step.

    Example:
        >>> from holdfast.sources import MicroBatches
        >>> model = torch.nn.Linear(4, 2)
        >>> source = MicroBatches(model, torch.nn.CrossEntropyLoss(), n_rows=5)
        >>> optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        >>> x, y = torch.ones(20, 4), torch.zeros(20, dtype=torch.int64)
        >>> x[:4] *= -1000.0  # the first row is corrupt
        >>> optimizer.zero_grad()
        >>> optimizer.step(source(x, y))
        >>> optimizer.result.rejected.tolist()
        [True, False, False, False, False]
    """

    # A gradient scaler must unscale the gradients itself, also for fused optimizers, which would
    # otherwise unscale them in their own step.
    _step_supports_amp_scaling = False

    def __init__(
        self,
        optimizer: Optimizer,
        rule: Aggregator | Step | str = "radius-filter",
        *,
        monitor: Monitor | None = None,
    ) -> None:
        # No super().__init__(): parameters, groups and state belong to the inner optimizer.
        check_instance("optimizer", optimizer, Optimizer)
        if isinstance(optimizer, torch.optim.LBFGS):
            requirement = "have a step without a closure, because rows are computed once per step"
            raise failure("optimizer", requirement, "LBFGS")
        if monitor is not None:
            check_instance("monitor", monitor, Monitor)
        self.optimizer, self.monitor = optimizer, monitor
        self.robust_step = step = _as_step(rule)
        # With a block, the optimizer gets the whole aggregate, and the block is chosen afterwards.
        self._delivers = isinstance(step, RobustStep) and not step.selector.takes_everything
        self._gradient_step = (
            RobustStep(step.rule, generator=step.generator) if self._delivers else step
        )
        self.result: StepResult | None = None
        self._layout: Layout | None = None  # of the rows whose gradient is in p.grad
        self._pending = PendingUpdate()
        self._has_warned = False

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
        **arguments: Unpack[StepArguments],
    ) -> StepResult | None:
        """Aggregate the rows and add the result to `p.grad`.

        Args:
            rows: rows with a layout, such as those of all sources.
            scaler: the gradient scaler of the source. The gradient is scaled as the scaler expects.
                If most rows overflowed, the gradient is infinite, so that `scaler.step` skips the
                step as usual; the state does not change, and the result is None.
            **arguments: `row_weights`, `reference` and `score`, for rules that accept them.
        """
        layout = rows.layout if isinstance(rows, Rows) else None
        if not isinstance(layout, Layout):
            requirement = "have a layout (use a source, or `Layout(model).rows(...)`)"
            raise failure("rows", requirement, type(rows).__name__)
        if self.monitor is not None and rows.n != self.monitor.n:
            requirement = f"have the {self.monitor.n} rows that the monitor watches"
            raise failure("rows", requirement, rows.n)
        self._check_holds(layout)
        self._pending.check_fits(layout)
        self.result = None
        scaler = scaler if scaler is not None and scaler.is_enabled() else None
        try:
            lr = self._lr(layout) if self._gradient_step.needs_lr else None
            self.result = self._gradient_step(rows, lr=lr, **arguments)
            direction = self.result.direction
            self._warn_of_few(rows.n)
            self._observe(rows, self.result, arguments.get("row_weights"))
        except NonFiniteRowsError:
            if scaler is None:
                raise
            direction = torch.full((rows.d,), torch.inf, dtype=rows.dtype, device=rows.device)
        if scaler is not None:
            direction = direction * scaler.scale(torch.ones((), device=rows.device)).to(direction)
        layout.write_gradient(direction)
        self._layout = layout
        return self.result

    def step(  # type: ignore[override]
        self,
        rows: Rows | None = None,
        closure: Callable[[], float] | None = None,
        **arguments: Unpack[StepArguments],
    ) -> None:
        """Aggregate the rows, if given, and make the optimizer's step.

        Args:
            rows: rows with a layout; None after :meth:`backward`.
            closure: never called, because rows are computed once per step; accepted because
                frameworks pass one.
            **arguments: as in :meth:`backward`.
        """
        if rows is not None:
            # No scaler here: nobody would unscale the gradient before the optimizer's step.
            self.backward(rows, scaler=None, **arguments)
        if self._layout is None:
            requirement = "be given to `step`, or to `backward` before it"
            raise failure("rows", f"{requirement}: a plain gradient is not robust", None)
        layout, self._layout = self._layout, None
        if not self._delivers:
            self.optimizer.step()
            return
        before = layout.values()
        self.optimizer.step()
        delivered = self._pending.deliver(layout, before, self.robust_step)
        self.robust_step.n_steps += 1
        if self.result is not None:
            self.result = replace(
                self.result,
                block=delivered.block,
                residual=delivered.residual,
                carried_norm=0.0 if delivered.later is None else length(delivered.later),
            )

    def _warn_of_few(self, n: int) -> None:
        rule = self.robust_step.rule
        if rule.has_too_few(n) and not self._has_warned:
            log.warning("of %d rows, %s resists no bad one: use more", n, rule)
            self._has_warned = True

    def _observe(self, rows: Rows, result: StepResult, row_weights: Tensor | None) -> None:
        if self.monitor is None:
            return
        rejected = result.rejected
        if row_weights is not None:  # a row without weight was left out by the caller
            rejected = rejected & (torch.as_tensor(row_weights).cpu() != 0)
        gram = result.aggregate.gram or rows.gram()
        self.monitor.observe(gram.for_all(rows.n), rejected)

    def _check_holds(self, layout: Layout) -> None:
        held = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        for name, parameter in zip(layout.names, layout.parameters, strict=True):
            if id(parameter) not in held:
                requirement = "be of parameters that the optimizer holds"
                raise failure("rows", requirement, f"{name!r}, which it does not")

    def _lr(self, layout: Layout) -> Rate:
        """The learning rate of the columns: one number, or [d] if groups differ."""
        if not all("lr" in group for group in self.param_groups):
            requirement = "have a learning rate in every group"
            needed_by = f"(needed by {self.robust_step!r})"
            raise failure("optimizer", f"{requirement} {needed_by}", "none")
        rates = {id(p): float(group["lr"]) for group in self.param_groups for p in group["params"]}
        found = [rates[id(parameter)] for parameter in layout.parameters]
        if len(set(found)) == 1:
            return found[0]
        device = layout.parameters[0].device
        sizes = torch.tensor(layout.sizes, device=device)
        return torch.tensor(found, dtype=torch.float32, device=device).repeat_interleave(sizes)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, with the state of Holdfast under "holdfast"."""
        own = {
            "step": self.robust_step.state_dict(),
            "pending": self._pending.state(),
            "monitor": None if self.monitor is None else self.monitor.state_dict(),
        }
        return {**self.optimizer.state_dict(), KEY: own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume exactly from `state_dict`; a state that does not fit changes nothing.

        A monitor resumes from the state's monitor, if there is one.
        """
        own = state_dict.get(KEY) if isinstance(state_dict, dict) else None
        if not isinstance(own, dict) or set(own) != {"step", "pending", "monitor"}:
            requirement = f"hold {KEY!r} (load a plain state with `.optimizer.load_state_dict`)"
            is_dict = isinstance(state_dict, dict)
            got = sorted(map(str, state_dict)) if is_dict else type(state_dict).__name__
            raise failure("state_dict", requirement, got)
        pending = PendingUpdate.from_state(own["pending"])
        if own["pending"] is not None and not self._delivers:
            requirement = f"hold no pending update, which {self.robust_step!r} never applies"
            raise failure("state_dict", requirement, "a pending update")
        before = self.robust_step.state_dict()
        self.robust_step.load_state_dict(own["step"])
        watched = None if self.monitor is None else self.monitor.state_dict()
        try:
            if self.monitor is not None and own["monitor"] is not None:
                self.monitor.load_state_dict(own["monitor"])
            inner = {key: value for key, value in state_dict.items() if key != KEY}
            self.optimizer.load_state_dict(inner)
        except BaseException:
            self.robust_step.load_state_dict(before)
            if self.monitor is not None and watched is not None:
                self.monitor.load_state_dict(watched)
            raise
        self._pending = pending


def _as_step(rule: object) -> Step:
    if isinstance(rule, Step):
        return rule
    if isinstance(rule, str) and rule.split("(")[0].strip() in presets:
        return preset(rule)
    if isinstance(rule, (Aggregator, str)):
        return RobustStep(rule)
    requirement = "be a rule, its name or a step, as in RobustOptimizer(optimizer, 'radius-filter')"
    raise failure("rule", requirement, kind_of(rule))
