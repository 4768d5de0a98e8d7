"""The README's diff runs as printed, on the embedded data."""

import re
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast.lab.data import fashion_mnist_slice
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches

README = Path(__file__).parent.parent / "README.md"


def test_the_diff_trains() -> None:
    diff = re.findall(r"```diff\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(diff) == 2  # the second one, for many ranks, has a test in tests/distributed
    assert sum(line.startswith("+") for line in diff[0].splitlines()) == 3, "three lines change"
    code = "\n".join(line[2:] for line in diff[0].splitlines() if not line.startswith("-"))
    data = fashion_mnist_slice("train")
    model: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    names = {
        "model": model,
        "loss_fn": nn.CrossEntropyLoss(),
        "loader": DataLoader(
            TensorDataset(data.scaled(), data.labels),
            batch_size=320,
            shuffle=True,
            drop_last=True,
            generator=stream(0, "order"),
        ),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "MicroBatches": MicroBatches,
        "RobustOptimizer": RobustOptimizer,
    }
    before = nn.functional.cross_entropy(model(data.scaled()), data.labels).item()
    exec(code, names)
    assert nn.functional.cross_entropy(model(data.scaled()), data.labels).item() < before - 0.3
