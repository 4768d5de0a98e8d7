"""Training of one configuration, with its record and checkpoints."""

from holdfast.lab.training._batches import Batches
from holdfast.lab.training._evaluation import evaluate
from holdfast.lab.training._own_checkpoint import CHECKPOINT_FILE
from holdfast.lab.training._own_record import read_own
from holdfast.lab.training._run import Watcher, follow, resume, run, trained_model
from holdfast.lab.training._tensorboard import TensorBoard, check_tensorboard

__all__ = [
    "CHECKPOINT_FILE",
    "Batches",
    "TensorBoard",
    "Watcher",
    "check_tensorboard",
    "evaluate",
    "follow",
    "read_own",
    "resume",
    "run",
    "trained_model",
]
