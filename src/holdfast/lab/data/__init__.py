"""Data sets: a slice of Fashion-MNIST that comes with the library, and whole ones that are fetched, checked and read."""

from holdfast.lab.data._data_set import DataSet
from holdfast.lab.data._data_sets import data_sets
from holdfast.lab.data._description import DataDescription
from holdfast.lab.data._fashion_mnist import CLASSES, fashion_mnist_slice, load_fashion_mnist
from holdfast.lab.data._fetch import fetch
from holdfast.lab.data._idx import read_idx, write_idx
from holdfast.lab.data._images import Images
from holdfast.lab.data._load import load
from holdfast.lab.data._locate import locate, verify
from holdfast.lab.data._progress import Progress

__all__ = [
    "CLASSES",
    "DataDescription",
    "DataSet",
    "Images",
    "Progress",
    "data_sets",
    "fashion_mnist_slice",
    "fetch",
    "load",
    "load_fashion_mnist",
    "locate",
    "read_idx",
    "verify",
    "write_idx",
]
