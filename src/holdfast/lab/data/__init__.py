"""Image data sets: a bundled slice of Fashion-MNIST, and full data sets that can be fetched."""

from holdfast.lab.data._data_set import DataSet, Images
from holdfast.lab.data._data_sets import CLASSES, DataDescription, DataFile, data_sets
from holdfast.lab.data._fetch import fetch
from holdfast.lab.data._idx import read_idx, read_idx_folder, write_idx
from holdfast.lab.data._load import fashion_mnist_slice, load
from holdfast.lab.data._locate import locate, verify
from holdfast.lab.data._own_data import (
    OwnData,
    load_own_data,
    locate_own_data,
    own_data,
)
from holdfast.lab.data._store import Progress

__all__ = [
    "CLASSES",
    "DataDescription",
    "DataFile",
    "DataSet",
    "Images",
    "OwnData",
    "Progress",
    "data_sets",
    "fashion_mnist_slice",
    "fetch",
    "load",
    "load_own_data",
    "locate",
    "locate_own_data",
    "own_data",
    "read_idx",
    "read_idx_folder",
    "verify",
    "write_idx",
]
