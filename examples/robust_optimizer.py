"""The robust optimizer with Adam, a schedule, clipping, and a checkpoint that resumes bit for bit.

python examples/robust_optimizer.py
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from holdfast import bgmd
from holdfast.lab.data import fashion_mnist_slice
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches


class Training:
    """A model, its optimizer and its schedule."""

    STATEFUL = ("model", "optimizer", "schedule")

    def __init__(self, n_steps: int) -> None:
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        self.source = MicroBatches(self.model, nn.CrossEntropyLoss(), n_rows=20)
        # A tenth of Adam's update is applied at each step, the rest stays pending.
        step = bgmd(fraction=0.1, generator=stream(0, "blocks"))
        self.optimizer = RobustOptimizer(torch.optim.AdamW(self.model.parameters(), lr=0.003), step)
        self.schedule = CosineAnnealingLR(self.optimizer, T_max=n_steps)

    def step(self, x: Tensor, y: Tensor) -> None:
        """One step with clipped gradients."""
        self.optimizer.zero_grad()
        self.optimizer.backward(self.source(x, y))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()

    def save(self, path: Path) -> None:
        """Write a checkpoint; what is pending is part of the optimizer's state."""
        torch.save({name: getattr(self, name).state_dict() for name in self.STATEFUL}, path)

    def load(self, path: Path) -> None:
        """Read a checkpoint, which holds only tensors and numbers."""
        for name, state in torch.load(path, weights_only=True).items():
            getattr(self, name).load_state_dict(state)


def main(n_steps: int = 60) -> bool:
    """Train with and without an interruption; print and return whether the results are equal."""
    data, generator = fashion_mnist_slice("train"), stream(0, "batches")
    batches = [torch.randint(0, len(data), (400,), generator=generator) for _ in range(n_steps)]
    training, images = Training(n_steps), data.scaled()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint.pt"
        resumed = Training(n_steps)
        for t, batch in enumerate(batches):
            if t == n_steps // 2:
                training.save(checkpoint)
                resumed.load(checkpoint)
            training.step(images[batch], data.labels[batch])
            if t >= n_steps // 2:
                resumed.step(images[batch], data.labels[batch])
    pairs = zip(training.model.parameters(), resumed.model.parameters(), strict=True)
    is_same = all(torch.equal(one, other) for one, other in pairs)
    print(f"loss {float(training.source.losses.mean()):.3f}; resumed bit for bit: {is_same}")
    return is_same


if __name__ == "__main__":
    main()
