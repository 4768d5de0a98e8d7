"""A training whose ranks send 2 % of their updates and trust no other rank; one of them lies.

From the middle of the run on, the rank `--bad` lies. With `--local-steps 8` every rank makes eight
steps of AdamW of its own between two rounds. With `--mean` the rule is the plain mean.

torchrun --nproc-per-node 4 examples/exchange_ranks.py --fault scaled-flip
torchrun --nproc-per-node 4 --max-restarts 2 examples/exchange_ranks.py --fault killed --folder a
"""

import argparse
import gc
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.distributed import Exchange, init_process_group
from holdfast.lab.data import Images, fashion_mnist_slice
from holdfast.lab.models import models
from holdfast.seeds import stream

TILE, LR, BATCH = 64, 0.1, 32


def main() -> None:
    """Read the arguments, train, and print what became of it on rank 0."""
    given = arguments()
    # Like torch's function of this name, but it also works when torchrun restarts the ranks.
    init_process_group("gloo", timeout=timedelta(seconds=given.timeout))
    found = train(given)
    if dist.get_rank() == 0:
        print("  ".join(f"{name}: {value}" for name, value in found.items()))
    gc.collect()  # a process group that something still refers to may abort the process at its end
    dist.destroy_process_group()


def train(given: argparse.Namespace) -> dict[str, Any]:
    """Train in the process group that is there; returns what `main` prints."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = models["mlp"](generator=stream(0, "parameters"))
    optimizer: torch.optim.Optimizer
    if given.local_steps is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 * LR)
    rule = f"blockwise(tile={TILE}) | " + ("mean" if given.mean else "geometric-median")
    exchange = Exchange(
        model, optimizer, rule=rule, tile=TILE, send=given.send, local_steps=given.local_steps
    )

    data = fashion_mnist_slice("train")
    shard = Images(data.images[rank::world_size], data.labels[rank::world_size])
    path = None if given.folder is None else given.folder / f"rank-{rank}.pt"
    first = resume(path, model, optimizer, exchange)
    for step in range(first, given.steps):
        # The same numbers in a resumed run; every rank draws others.
        torch.default_generator.manual_seed(step * world_size + rank)
        images, labels = shard.batch(torch.randint(len(shard), (BATCH,)))
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        if rank == given.bad and step == given.steps // 2:
            begin(given.fault, exchange)
        exchange.step()  # in the place of optimizer.step()
        if path is not None and (step + 1) % given.every == 0:
            save(path, step + 1, model, optimizer, exchange)
    return summary(model, exchange)


def save(
    path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, exchange: Exchange
) -> None:
    """Write the checkpoint of this rank, as a whole or not at all; each rank has its own."""
    path.parent.mkdir(exist_ok=True)
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state["exchange"] = exchange.state_dict()
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def resume(
    path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, exchange: Exchange
) -> int:
    """Load the checkpoint of this rank if there is one; returns the next step."""
    if path is None:
        return 0
    state = torch.load(path, weights_only=True) if path.exists() else None
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    exchange.load_state_dict(None if state is None else state["exchange"])  # all ranks call it
    return exchange.n_steps


def summary(model: nn.Module, exchange: Exchange) -> dict[str, Any]:
    """Test accuracy, who was left out and is suspect, what was sent, and equality of all ranks."""
    test = fashion_mnist_slice("test")
    model.eval()
    with torch.no_grad():
        accuracy = float((model(test.scaled()).argmax(1) == test.labels).double().mean())
    norms: list[Any] = [None] * dist.get_world_size()
    values = torch.cat([one.detach().flatten() for one in model.parameters()])
    dist.all_gather_object(norms, values.norm().item().hex())
    share = exchange.bytes_sent / (exchange.n - 1) / (4 * len(values))
    return {
        "accuracy": round(100 * accuracy, 2),
        "left out": exchange.counts.tolist(),
        "suspects": {one.row: one.reason for one in exchange.suspects()},
        "sent per round": f"{100 * share:.1f} % of the model",
        "parameters": " ".join(sorted(set(norms))),
    }


def begin(fault: str, exchange: Exchange) -> None:
    """Go wrong on this rank, from now on."""
    if fault in SIGNALS and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        os.kill(os.getpid(), SIGNALS[fault])
    if fault in LIES:
        memory, change, send = exchange.memory, LIES[fault], exchange.memory.payload

        def payload(block: Any) -> Any:
            honest = send(block)
            return type(honest)(change(honest.values), honest.scales)

        memory.payload = payload  # type: ignore[method-assign]


LIES: dict[str, Callable[[Tensor], Tensor]] = {
    "nan": lambda values: values * torch.nan,
    "scaled-flip": lambda values: -100 * values,
    "flip": lambda values: -values,
    "noise": lambda values: values + 10 * values.std() * torch.randn_like(values),
}
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
FAULTS = ("none", *LIES, *SIGNALS)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fault", choices=FAULTS, default="none", help="what goes wrong")
    parser.add_argument("--bad", type=int, default=1, help="the rank where it goes wrong")
    parser.add_argument("--mean", action="store_true", help="the mean instead of the median")
    parser.add_argument("--send", type=float, default=0.02, help="share that is sent in a round")
    parser.add_argument("--local-steps", type=int, help="steps of AdamW between two rounds")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--folder", type=Path, help="for checkpoints to write and to resume from")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for a rank")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
