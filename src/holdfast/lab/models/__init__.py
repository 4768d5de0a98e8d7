"""Models of the paper."""

from holdfast.lab.models._lenet import lenet
from holdfast.lab.models._resnet18 import resnet18

__all__ = ["lenet", "resnet18"]
