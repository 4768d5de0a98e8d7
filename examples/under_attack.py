"""Training under attack: at every step 40 % of the rows send -100 times their gradient.

The argument may name any attack of docs/threats.md:

python examples/under_attack.py "scaled-flip(factor=100)"
"""

import sys
from collections.abc import Callable

import torch
from torch import nn

from holdfast import RobustStep, bgmd
from holdfast.errors import NonFiniteMemoryError, NonFiniteRowsError
from holdfast.lab.data import fashion_mnist_slice
from holdfast.seeds import stream
from holdfast.sources import MicroBatches
from holdfast.threats import Adversaries, Attack, attacks

STEPS: dict[str, Callable[[], RobustStep]] = {
    "mean": lambda: RobustStep("mean"),
    "radius filter": lambda: RobustStep("radius-filter"),
    "covariance filter": lambda: RobustStep("covariance-filter"),
    "bgmd": lambda: bgmd(fraction=0.1),
}


def train(step: RobustStep, attack: Attack, n_steps: int) -> float:
    """Test accuracy after training under the attack."""
    data, test = fashion_mnist_slice("train"), fashion_mnist_slice("test")
    images, generator = data.scaled(), stream(0, "training")
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    source = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=20)
    adversaries = Adversaries(bad_fraction=0.4)
    mask, state = None, None
    for _ in range(n_steps):
        batch = torch.randint(0, len(data), (640,), generator=generator)
        rows = source(images[batch], data.labels[batch])
        mask = adversaries.draw(rows.n, generator=generator, previous=mask)
        sent = attack(rows, mask, generator=generator, state=state)
        state = attack.learn(rows, mask, state)
        optimizer.zero_grad()
        step.backward(sent, lr=0.2)
        optimizer.step()
    with torch.no_grad():
        return float((model(test.scaled()).argmax(1) == test.labels).double().mean())


def main(text: str = "scaled-flip(factor=100)", n_steps: int = 150) -> dict[str, float | None]:
    """Print and return the test accuracy of every step; None where training diverged."""
    attack = attacks.parse(text)
    print(f"{text}: {attack.aim}")
    found: dict[str, float | None] = {}
    for name, make in STEPS.items():
        try:
            found[name] = train(make(), attack, n_steps)
            print(f"  {name}: test accuracy {found[name]:.3f}")
        except (NonFiniteRowsError, NonFiniteMemoryError) as error:
            found[name] = None
            print(f"  {name}: diverged ({error})")
    return found


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) > 1 else main()
