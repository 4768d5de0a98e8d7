"""The training settings of the paper's three data sets."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.lab.config import Config
from holdfast.lab.data import data_sets
from holdfast.lab.optimizers import Adam, OptimizerSpec, Sgd, optimizers
from holdfast.lab.paper._plan import Size, Variant
from holdfast.lab.partitions import Partition, Shards, Shuffled, partitions
from holdfast.lab.schedules import (
    Constant,
    Cosine,
    CosineRestarts,
    Exponential,
    Schedule,
    schedules,
)

N_SHARDS = 80
"""Into which the label-sorted data are cut for clients that differ."""


def fashion_mnist(variant: Variant, size: Size) -> Config:
    """Table 2: the LeNet on Fashion-MNIST.

    Text: 32 rows of 64, rate 0.01 less 1 % per epoch, weight decay 1e-4, 50 epochs. Published: 32 rows of 16, Nesterov momentum 0.9, rate less 10 % per epoch, weight
    decay 1e-5. Quick: rows of 16, momentum 0.9, 600 steps.
    """
    if variant == "paper":
        optimizer = Sgd(lr=0.01, momentum=0.0 if size == "full" else 0.9, weight_decay=1e-4)
        schedule, row_size = Exponential(decay=0.99), 64 if size == "full" else 16
    else:
        optimizer, schedule, row_size = (
            Sgd(lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-5),
            Exponential(decay=0.9),
            16,
        )
    n_steps = {"smoke": 6, "quick": 600, "full": _n_steps("fashion-mnist", 50, 32 * row_size)}[size]
    return _setting(
        "fashion-mnist", "lenet", Shuffled(), 32, row_size, optimizer, schedule, n_steps, size
    )


def mnist(variant: Variant, size: Size, model: str = "lenet") -> Config:
    """Table 3, and the figures about the size of the block: MNIST.

    Text: 10 rows of 64, rate 0.001 by half a cosine, momentum 0.9, weight decay 1e-4; it gives no number of epochs, so the 50 of Fashion-MNIST. Published: Adam 0.001
    throughout, weight decay 1e-5, 10 epochs. Quick: rows of 16, 1000 steps. Of the tiny network the text says nothing; at 0.001 it stays at chance, at 0.03 it learns with
    every k.
    """
    optimizer: OptimizerSpec
    schedule: Schedule
    row_size = 64 if size == "full" else 16
    if variant == "paper":
        lr = 0.03 if model == "tiny-cnn" else 0.001
        optimizer, schedule, n_epochs = Sgd(lr=lr, momentum=0.9, weight_decay=1e-4), Cosine(), 50
    else:
        optimizer, schedule, n_epochs = Adam(lr=0.001, weight_decay=1e-5), Constant(), 10
    n_steps = {"smoke": 6, "quick": 1000, "full": _n_steps("mnist", n_epochs, 10 * row_size)}[size]
    return _setting("mnist", model, Shuffled(), 10, row_size, optimizer, schedule, n_steps, size)


def cifar10(variant: Variant, size: Size) -> Config:
    """Table 4: CIFAR-10 with 10 clients.

    Text: clients of 128, each with 8 of 80 label-sorted shards, rate 0.1 by cosines with warm restarts, weight decay 1e-4, 200 epochs; it does not say when the restarts are, here every 50 epochs.
    Published: i.i.d., momentum 0.9, half a cosine, weight decay 5e-4, 100 epochs. Quick: the LeNet in place of the ResNet-18, with rate 0.01, rows of 16, momentum 0.9, 937 steps: cosines of 1 and 2 epochs.
    """
    is_full = size == "full"
    model, lr = ("resnet-18", 0.1) if is_full else ("lenet", 0.01)
    partition: Partition
    schedule: Schedule
    row_size = 128 if is_full else 16
    if variant == "paper":
        optimizer = Sgd(lr=lr, momentum=0.0 if is_full else 0.9, weight_decay=1e-4)
        partition, n_epochs = Shards(n_shards=N_SHARDS), 200
        schedule = (
            CosineRestarts(period=50, growth=1) if is_full else CosineRestarts(period=1, growth=2)
        )
    else:
        optimizer = Sgd(lr=lr, momentum=0.9, weight_decay=5e-4)
        partition, schedule, n_epochs = Shuffled(), Cosine(), 100
    n_steps = {"smoke": 6, "quick": 937, "full": _n_steps("cifar-10", n_epochs, 10 * row_size)}[
        size
    ]
    return _setting("cifar-10", model, partition, 10, row_size, optimizer, schedule, n_steps, size)


def _setting(
    data: str,
    model: str,
    partition: Partition,
    n_rows: int,
    row_size: int,
    optimizer: OptimizerSpec,
    schedule: Schedule,
    n_steps: int,
    size: Size,
) -> Config:
    config = Config(
        data=data,
        model=model,
        partition=partition,
        n_rows=n_rows,
        row_size=row_size,
        optimizer=optimizer,
        schedule=schedule,
        n_steps=n_steps,
        evaluate_every=max(1, n_steps // 8)
        if size != "full"
        else math.ceil(data_sets[data].n_train / (n_rows * row_size)),
    )
    return _smaller(config) if size == "smoke" else config


def _smaller(config: Config) -> Config:
    """The same with the embedded data, fewer rows and a small model, to see in seconds that all works."""
    model = config.model if config.model == "tiny-cnn" else "logistic-regression"
    return replace(
        config,
        data="fashion-mnist-slice",
        model=model,
        n_rows=min(config.n_rows, 10),
        row_size=4,
        evaluate_every=3,
        rows_every=2,
    )


def _n_steps(data: str, n_epochs: int, batch_size: int) -> int:
    return math.ceil(n_epochs * data_sets[data].n_train / batch_size)


def describe(config: Config) -> str:
    """The setting in a sentence."""
    words = [
        f"{config.model} on {config.data}",
        f"{config.n_rows} rows of {config.row_size} samples",
        f"{config.n_steps:,} steps ({config.n_epochs:.1f} epochs)",
        _in_full(optimizers.to_json(config.optimizer)),
        _in_full(schedules.to_json(config.schedule)),
        _in_full(partitions.to_json(config.partition)),
    ]
    return ", ".join(words) + "."


def _in_full(part: Mapping[str, Any]) -> str:
    """As on the command line, but with the defaults; only what is off or zero is left out."""
    listed = ", ".join(
        f"{name}={value}" for name, value in part.items() if name != "name" and value
    )
    return f"{part['name']}({listed})" if listed else str(part["name"])
