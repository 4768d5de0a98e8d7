"""Runs side by side in processes of their own, which can be stopped and resumed at any moment."""

from holdfast.lab.sweep._cores import n_cores
from holdfast.lab.sweep._plan import PlannedRun, plan_runs
from holdfast.lab.sweep._sweep import SweepObserver, SweepResult, sweep

__all__ = [
    "PlannedRun",
    "SweepObserver",
    "SweepResult",
    "n_cores",
    "plan_runs",
    "sweep",
]
