"""Data sets: a slice of Fashion-MNIST that comes with the library, and the reader of IDX files."""

from holdfast.lab.data._fashion_mnist import CLASSES, fashion_mnist_slice, load_fashion_mnist
from holdfast.lab.data._idx import read_idx, write_idx
from holdfast.lab.data._images import Images

__all__ = [
    "CLASSES",
    "Images",
    "fashion_mnist_slice",
    "load_fashion_mnist",
    "read_idx",
    "write_idx",
]
