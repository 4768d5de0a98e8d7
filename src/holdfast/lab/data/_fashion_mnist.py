"""Fashion-MNIST: ten kinds of clothes, 28 by 28 grey pixels.

Reference: Xiao, Rasul and Vollgraf, *Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms*
(arXiv:1708.07747); https://github.com/zalandoresearch/fashion-mnist.
"""

import os
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

import torch

from holdfast.lab.data._idx import read_idx
from holdfast.lab.data._idx_folder import read_idx_folder, standard_names
from holdfast.lab.data._images import Images

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
"""The names of the labels 0 to 9."""


def fashion_mnist_slice(split: Literal["train", "test"]) -> Images:
    """The slice of Fashion-MNIST that comes with the library, for runs without a download.

    The first 600 training images or the first 200 test images of each class, in the order of the full set.

    Example:
        >>> test = fashion_mnist_slice("test")
        >>> test.images.shape, CLASSES[test.labels[0]]
        (torch.Size([2000, 28, 28]), 'Ankle boot')
    """
    images, labels = standard_names(split)
    embedded = files("holdfast.lab.data") / "embedded"
    with (
        as_file(embedded / f"{images}.gz") as images_path,
        as_file(embedded / f"{labels}.gz") as labels_path,
    ):
        return Images(read_idx(images_path), read_idx(labels_path).to(torch.int64))


def load_fashion_mnist(folder: str | os.PathLike[str], split: Literal["train", "test"]) -> Images:
    """The full Fashion-MNIST, from a folder with the four standard files, each gzipped or not.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, with or without `.gz`.
    """
    return read_idx_folder(Path(folder), split)
