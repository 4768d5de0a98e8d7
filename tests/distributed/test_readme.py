"""The README's lines for many ranks run as printed, with one rank that computes garbage."""

import re
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.workers import Workers

README = Path(__file__).parent.parent.parent / "README.md"


def gradient_with_a_bad_rank(code: str) -> float:
    """The length of the gradient, where rank 1 has a million times its own."""
    torch.set_rng_state(torch.Generator().manual_seed(0).get_state())
    names = {"model": nn.Linear(8, 2), "DistributedDataParallel": DistributedDataParallel}
    exec(code, names)
    model = names["model"]
    assert isinstance(model, DistributedDataParallel)
    factor = 1e6 if dist.get_rank() == 1 else 1.0
    (factor * model(torch.ones(4, 8)).square().mean()).backward()
    return float(
        torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    )


def test_the_guarded_model_survives_a_bad_rank(workers: Workers) -> None:
    diffs = re.findall(r"```diff\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (diff,) = [diff for diff in diffs if "guard(model)" in diff]
    with_guard = "\n".join(line[2:] for line in diff.splitlines())
    without = "\n".join(line[2:] for line in diff.splitlines() if not line.startswith("+"))
    assert max(workers.run(gradient_with_a_bad_rank, with_guard)) < 10
    assert min(workers.run(gradient_with_a_bad_rank, without)) > 1e4
