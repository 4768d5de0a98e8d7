"""The training of one configuration, with its record and checkpoints."""

from holdfast.lab.training._batches import Batches
from holdfast.lab.training._evaluation import evaluate
from holdfast.lab.training._run import Watcher, resume, run, trained_model

__all__ = ["Batches", "Watcher", "evaluate", "resume", "run", "trained_model"]
