"""The lab, where data sets, models and experiments live."""

from holdfast.lab.config import Config, Threat
from holdfast.lab.training import resume, run, trained_model

__all__ = ["Config", "Threat", "resume", "run", "trained_model"]
