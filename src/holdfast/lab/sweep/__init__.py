"""Many runs, side by side, that can be stopped and taken up at any moment."""

from holdfast.lab.sweep._cores import n_cores
from holdfast.lab.sweep._events import Audience
from holdfast.lab.sweep._sweep import Tally, ended_runs, sweep

__all__ = ["Audience", "Tally", "ended_runs", "n_cores", "sweep"]
