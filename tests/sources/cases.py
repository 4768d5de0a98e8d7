"""Models small enough for a loop over single samples, each with a batch that fits it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from holdfast import Layout
from holdfast.geometry import Rows
from holdfast.lab.models import lenet
from holdfast.seeds import stream


class Sequence(nn.Module):
    """Layers applied at every position of a sequence, and an embedding with a padding entry."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.convolution = nn.Conv1d(6, 5, 3, padding=2, dilation=2)
        self.scale = nn.RMSNorm(5)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        positions: Tensor = self.out(
            self.scale(self.convolution(self.norm(self.table(x)).mT).mT).tanh()
        )
        return positions.mean(1)


class Attention(nn.Module):
    """Modules without a short form: attention, a recurrent layer, and a parameter of the model.

    The output layer of the attention is never called as a module.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(1, 1, 4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.recurrent = nn.LSTM(4, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat([self.first.expand(len(x), 1, 4), x], dim=1)
        mixed = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        found: Tensor = self.out(self.recurrent(mixed)[0][:, -1])
        return found


class Overwritten(nn.Module):
    """Outputs that a later operation overwrites in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.second = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        hidden.relu_()
        out: Tensor = self.second(hidden)
        return out.mul_(2.0)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 8, (3, 2), stride=(2, 1), groups=2, bias=False),
        nn.InstanceNorm2d(8, affine=True),
        nn.Conv2d(8, 6, 3, padding="same"),
        nn.Flatten(),
        nn.Linear(6 * 3 * 6, 3),
    )


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def evaluated_batch_norm() -> nn.Module:
    model: Any = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[1].running_mean.add_(0.3)
    model[1].eval()
    return cast(nn.Module, model)


class Tied(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return found


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    n_words: int | None = None

    def make(
        self, n: int = 6, dtype: torch.dtype = torch.float32
    ) -> tuple[nn.Module, Tensor, Tensor]:
        """The model, n inputs, n labels."""
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(3)
            model = self.build().to(dtype)
        generator = stream(0, self.name)
        if self.n_words is None:
            x = torch.randn(n, *self.shape, generator=generator).to(dtype)
        else:
            x = torch.randint(0, self.n_words, (n, *self.shape), generator=generator)
        return model, x, torch.randint(0, 3, (n,), generator=generator)


CASES = [
    Case("linear", lambda: nn.Linear(4, 3), (4,)),
    Case("perceptron", lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    Case("convolutions", convolutions, (2, 8, 7)),
    Case(
        "volumes",
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2, stride=2), nn.Flatten(), nn.Linear(16, 3)),
        (1, 4, 4, 4),
    ),
    Case("sequence", Sequence, (7,), n_words=11),
    Case("one word", lambda: nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3)), (), n_words=5),
    Case("attention", Attention, (3, 4)),
    Case("overwritten", Overwritten, (5,)),
    Case("frozen", frozen, (5,)),
    Case("evaluated batch norm", evaluated_batch_norm, (5,)),
    Case(
        "transposed",
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Flatten(), nn.Linear(48, 3)),
        (2, 3, 3),
    ),
    Case("tied", Tied, (5,)),
    Case(
        "lenet",
        lambda: nn.Sequential(*(layer for layer in lenet() if not isinstance(layer, nn.Dropout))),
        (1, 28, 28),
    ),
]


def matrix(rows: Rows) -> Tensor:
    """[n, d] the rows, one by one."""
    return torch.stack(
        [rows.combine(weights) for weights in torch.eye(rows.n, dtype=torch.float64)]
    )


def gradients_of_losses(model: nn.Module, losses: Tensor) -> Tensor:
    """[n, d] the gradient of each loss, from one graph: all rows have the noise of one pass."""
    layout = Layout(model)
    return torch.stack(
        [
            layout.flatten(
                [
                    torch.zeros_like(p) if g is None else g
                    for p, g in zip(
                        layout.parameters,
                        torch.autograd.grad(
                            loss, layout.parameters, retain_graph=True, allow_unused=True
                        ),
                        strict=True,
                    )
                ]
            )
            for loss in losses
        ]
    )


@contextmanager
def named(case: Case) -> Iterator[None]:
    """Adds the name of the case to errors raised within the context."""
    try:
        yield
    except Exception as error:
        error.add_note(f"case: {case.name}")
        raise
