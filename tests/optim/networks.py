"""A small network with batches, and torch's optimizers."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from holdfast import RobustStep
from holdfast.geometry import Rows
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.selectors import Selector, TopNorm
from holdfast.sources import MicroBatches
from tests.robust_step.steps import seeded

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2
    ),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "two groups": lambda p: torch.optim.SGD(
        [{"params": p[:1], "lr": 0.2}, {"params": p[1:], "lr": 0.0}], lr=0.1
    ),
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
BLOCK = TopNorm(fraction=0.3, tile=1)


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def batches(n: int, dtype: torch.dtype = torch.float32) -> Iterator[tuple[Tensor, Tensor]]:
    generator = stream(0, "batches")
    for _ in range(n):
        inputs = torch.randn(20, 6, generator=generator).to(dtype)
        yield inputs, torch.randint(0, 3, (20,), generator=generator)


def source_of(model: nn.Module) -> MicroBatches:
    return MicroBatches(model, cross_entropy, n_rows=5)


def parameters_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def delivering(
    model: nn.Module,
    make: MakeOptimizer,
    selector: Selector = BLOCK,
    rule: str = "geometric-median",
) -> RobustOptimizer:
    """An optimizer with a block, which it delivers after its step."""
    step = RobustStep(rule, selector=selector, generator=seeded())
    return RobustOptimizer(make(list(model.parameters())), step)


def pending_of(optimizer: RobustOptimizer) -> Tensor:
    """[d] what is pending."""
    pending: Tensor | None = optimizer.state_dict()["holdfast"]["pending"]
    d = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    return torch.zeros(d) if pending is None else pending


def train(model: nn.Module, optimizer: RobustOptimizer, n_steps: int) -> Iterator[Rows]:
    """Make the steps, and give each step's rows afterwards."""
    source = source_of(model)
    for x, y in batches(n_steps):
        rows = source(x, y)
        optimizer.zero_grad()
        optimizer.step(rows)
        yield rows
