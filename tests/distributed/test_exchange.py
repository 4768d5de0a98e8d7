"""The exchange over ranks equals the simulation of all ranks in one process, bit for bit."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast import Layout
from holdfast.distributed import Exchange
from holdfast.exchange import AgreedBlock
from holdfast.geometry import Tiling
from holdfast.seeds import stream
from tests.distributed.cases import SIZES, Known
from tests.distributed.workers import Workers
from tests.exchange.cases import Simulation

D, TILE = sum(SIZES), 4
RULE = f"blockwise(tile={TILE}) | geometric-median"
OPTIONS: dict[str, Any] = {"send": 0.2, "tile": TILE, "rule": RULE, "min_wait": 2, "max_wait": 9}


def gradients(n: int = 4, n_rounds: int = 6) -> Tensor:
    """[n_rounds, n, d] with a common part."""
    own = torch.randn(n_rounds, n, D, generator=stream(0, "gradients", n))
    return own + own[:1, :1]


def flat(model: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()]).clone()


def simulated(updates: Tensor, **options: Any) -> Tensor:
    """[n_rounds, d] the parameters after each round of a simulation."""
    model = Known()
    layout = Layout(model)
    waits = {name: OPTIONS[name] for name in ("send", "min_wait", "max_wait")}
    agreed = AgreedBlock(Tiling(layout.sizes, TILE), **waits, **options)
    simulation = Simulation(layout, updates.shape[1], agreed, RULE)
    found = []
    for rows in updates:
        simulation.round(rows)
        found.append(flat(model))
    return torch.stack(found)


def trained(batches: Tensor, lr: float, options: dict[str, Any]) -> Tensor:
    """[n_rounds, d] the parameters of this rank after each round."""
    model = Known()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    exchange = Exchange(model, optimizer, **OPTIONS | options)
    found = []
    for batch in batches:
        optimizer.zero_grad()
        model(batch[dist.get_rank()]).backward()
        assert exchange.step()
        found.append(flat(model))
    assert exchange.agreed.round == len(batches)
    return torch.stack(found)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("report_every", [1, 3, None])
def test_ranks_equal_the_simulation(workers: Workers, n: int, report_every: int | None) -> None:
    batches = gradients(n)
    wanted = simulated(0.5 * batches, report_every=report_every)
    for found in workers.run(trained, batches, 0.5, {"report_every": report_every}, n=n):
        assert found.equal(wanted)
