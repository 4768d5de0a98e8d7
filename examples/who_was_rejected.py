"""A figure of the rejected rows over steps: crosses mark bad rows, dark squares rejected ones.

python examples/who_was_rejected.py rejected.svg
"""

import sys
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

from holdfast import RobustStep
from holdfast.lab.data import fashion_mnist_slice
from holdfast.seeds import stream
from holdfast.sources import MicroBatches
from holdfast.threats import Adversaries, InnerProduct


def train(n_steps: int) -> tuple[Tensor, Tensor]:
    """Bool [n_steps, n]: the bad rows and the rejected rows of every step."""
    data, generator = fashion_mnist_slice("train"), stream(0, "training")
    images = data.scaled()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    source = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=20)
    step, attack = RobustStep("covariance-filter"), InnerProduct(factor=2.0)
    adversaries = Adversaries(bad_fraction=0.3)
    bad, rejected = [], []
    for _ in range(n_steps):
        batch = torch.randint(0, len(data), (640,), generator=generator)
        rows = source(images[batch], data.labels[batch])
        bad.append(adversaries.draw(rows.n, generator=generator))
        optimizer.zero_grad()
        rejected.append(step.backward(attack(rows, bad[-1])).rejected)
        optimizer.step()
    return torch.stack(bad), torch.stack(rejected)


def draw(bad: Tensor, rejected: Tensor, path: Path) -> None:
    """One square per row and step."""
    mpl.use("svg")
    figure, axis = plt.subplots(figsize=(9, 3.6), layout="constrained")
    axis.imshow(
        rejected.T.numpy(), cmap="Greys", vmin=0, vmax=1.6, aspect="auto", interpolation="nearest"
    )
    steps, rows = torch.nonzero(bad, as_tuple=True)
    axis.scatter(steps.numpy(), rows.numpy(), marker="x", s=14, color="tab:red", linewidths=1)
    axis.set(
        xlabel="step",
        ylabel="row",
        yticks=range(0, bad.shape[1], 5),
        title="dark: rejected by the covariance filter; cross: a bad row",
    )
    figure.savefig(path)
    plt.close(figure)


def main(path: Path, n_steps: int = 60) -> tuple[float, float]:
    """Draw; print and return the shares of bad and of honest rows that were rejected."""
    bad, rejected = train(n_steps)
    draw(bad, rejected, path)
    shares = float(rejected[bad].double().mean()), float(rejected[~bad].double().mean())
    print(f"rejected: {shares[0]:.0%} of the bad rows, {shares[1]:.0%} of the honest ones ({path})")
    return shares


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/who_was_rejected.py FIGURE.svg")
    main(Path(sys.argv[1]))
