"""An ordinary training loop made robust by three lines.

python examples/robust_loop.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast.lab.data import fashion_mnist_slice
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches


def main(n_epochs: int = 4) -> float:
    """Train a small network on the embedded images; print and return its test accuracy."""
    train, test = fashion_mnist_slice("train"), fashion_mnist_slice("test")
    data = TensorDataset(train.scaled(), train.labels)
    loader = DataLoader(
        data, batch_size=400, shuffle=True, drop_last=True, generator=stream(0, "order")
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    loss_fn, sgd = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.2)

    source = MicroBatches(model, loss_fn, n_rows=20)  # new
    optimizer = RobustOptimizer(sgd)  # new
    for epoch in range(n_epochs):
        for x, y in loader:
            optimizer.zero_grad()
            optimizer.step(source(x, y))  # instead of loss_fn(model(x), y).backward()
        with torch.no_grad():
            accuracy = float((model(test.scaled()).argmax(1) == test.labels).double().mean())
        loss = float(source.losses.mean())
        print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
