"""Many runs, side by side, that can be stopped and taken up at any moment."""

from holdfast.lab.sweep._cores import n_cores
from holdfast.lab.sweep._events import SweepObserver
from holdfast.lab.sweep._sweep import SweepResult, ended_runs, sweep

__all__ = ["SweepObserver", "SweepResult", "ended_runs", "n_cores", "sweep"]
