"""Robustness to single samples: 40 % of the images in every batch are noise.

Every slice of a batch then holds bad images, but single samples can be clipped, without the matrix
of their gradients.

python examples/per_sample.py
"""

import torch
from torch import nn

from holdfast import RobustStep
from holdfast.aggregators import Mean, NormClipping
from holdfast.lab.data import fashion_mnist_slice
from holdfast.seeds import stream
from holdfast.sources import LayerGrams, MicroBatches, Source
from holdfast.threats import Adversaries, GaussianNoise


def train(kind: str, n_steps: int) -> float:
    """Test accuracy with clipped single samples, up to 51 bad of 128, or with slices of eight."""
    data, test = fashion_mnist_slice("train"), fashion_mnist_slice("test")
    images, generator = data.scaled(), stream(0, "training")
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.2)
    source: Source
    if kind == "samples":
        source = LayerGrams(model, loss_fn)
        step = RobustStep(NormClipping(n_bad=51, rule=Mean()))
    else:
        source, step = MicroBatches(model, loss_fn, n_rows=16), RobustStep("geometric-median")
    adversaries, noise = Adversaries(bad_fraction=0.4), GaussianNoise(deviation=10.0)
    for _ in range(n_steps):
        batch = torch.randint(0, len(data), (128,), generator=generator)
        bad = adversaries.draw(128, generator=generator)
        x, y = noise(images[batch], data.labels[batch], bad, generator=generator)
        optimizer.zero_grad()
        result = step.backward(source(x, y))
        optimizer.step()
    if kind == "samples":
        assert result.weights is not None
        clean, noisy = result.weights[~bad].mean(), result.weights[bad].mean()
        print(f"  mean weights in the last step: clean images {clean:.4f}, noisy ones {noisy:.4f}")
    with torch.no_grad():
        return float((model(test.scaled()).argmax(1) == test.labels).double().mean())


def main(n_steps: int = 150) -> dict[str, float]:
    """Print and return the test accuracies."""
    found = {}
    for kind in ("slices", "samples"):
        found[kind] = train(kind, n_steps)
        print(f"{kind}: test accuracy {found[kind]:.3f}")
    return found


if __name__ == "__main__":
    main()
