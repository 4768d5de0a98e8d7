"""A DDP script with one added line, which survives a bad rank and names it.

The rank `--bad` goes bad in the middle of the run. With `--plain` the added line is left out, with
`--fsdp` the model is sharded by `fully_shard` instead of wrapped in DistributedDataParallel.

torchrun --nproc-per-node 4 examples/ddp_guard.py --fault scaled-flip
torchrun --nproc-per-node 4 --max-restarts 2 examples/ddp_guard.py --fault killed --checkpoint a.pt
"""

import argparse
import gc
import hashlib
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import Guard, guard, init_process_group
from holdfast.lab.data import Images, fashion_mnist_slice
from holdfast.lab.models import models
from holdfast.seeds import stream

WHOLE = StateDictOptions(full_state_dict=True)


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
    model: nn.Module = models[given.model](generator=stream(0, "parameters"))
    if given.fsdp:
        for layer in model.children():
            if list(layer.parameters()):
                fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    watch = None
    if not given.plain:
        watch = guard(model, check_every=10, on_mismatch="copy")  # the added line

    shard = shard_of_images(rank, world_size)
    first = resume(given.checkpoint, model, optimizer, watch)
    fault = Fault(given.fault if rank == given.bad else "none", model)
    for step in range(first, given.steps):
        # The same numbers in a resumed run; every rank draws others.
        torch.default_generator.manual_seed(step * world_size + rank)
        images, labels = shard.batch(torch.randint(len(shard), (32,)))
        if step >= given.steps // 2:
            images, labels = fault.strike(images, labels)
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 - step / given.steps)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        if given.checkpoint is not None and (step + 1) % given.every == 0:
            save(given.checkpoint, step + 1, model, optimizer, watch)
    return summary(model, watch)


def shard_of_images(rank: int, world_size: int) -> Images:
    """The training images that belong to a rank."""
    data = fashion_mnist_slice("train")
    return Images(data.images[rank::world_size], data.labels[rank::world_size])


def save(
    path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, watch: Guard | None
) -> None:
    """Write a checkpoint that is there as a whole or not at all."""
    parameters, moments = get_state_dict(model, optimizer, options=WHOLE)  # all ranks take part
    if dist.get_rank() == 0:
        state = {"step": step, "model": parameters, "optimizer": moments}
        state["guard"] = None if watch is None else watch.state_dict()
        part = path.with_suffix(".part")
        torch.save(state, part)
        part.replace(path)


def resume(
    path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, watch: Guard | None
) -> int:
    """Load the checkpoint if there is one; returns the next step."""
    if path is None or not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=WHOLE,
    )
    if watch is not None:
        watch.load_state_dict(state["guard"])
    return int(state["step"])


def summary(model: nn.Module, watch: Guard | None) -> dict[str, Any]:
    """Test accuracy, whom the guard left out and suspects, and whether all ranks are equal."""
    test = fashion_mnist_slice("test")
    model.eval()
    with torch.no_grad():
        accuracy = float((model(test.scaled()).argmax(1) == test.labels).double().mean())
    digests: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(digests, digest_of(model))
    found: dict[str, Any] = {"accuracy": round(100 * accuracy, 2)}
    if watch is not None:
        found["rejected"] = watch.counts.tolist()
        found["suspects"] = {suspect.row: suspect.reason for suspect in watch.suspects()}
    return found | {"parameters": " ".join(sorted(set(digests)))}


def digest_of(model: nn.Module) -> str:
    """A digest of the whole parameters, of which the ranks of `fully_shard` have shards."""
    digest = hashlib.sha256()
    for parameter in get_model_state_dict(model, options=WHOLE).values():
        assert isinstance(parameter, Tensor)
        digest.update(parameter.contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


class Fault:
    """What goes wrong on this rank, for good."""

    def __init__(self, name: str, model: nn.Module) -> None:
        self._name, self._model = name, model
        self._is_new = True

    def strike(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Go wrong; returns the batch that is trained on."""
        if self._is_new:
            self._begin()
            self._is_new = False
        if self._name == "slow":
            time.sleep(0.1)
        if self._name == "data":
            return torch.rand_like(images), torch.randint_like(labels, 10)
        return images, labels

    def _begin(self) -> None:
        is_first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if self._name in SIGNALS and is_first_start:
            os.kill(os.getpid(), SIGNALS[self._name])
        if self._name in GRADIENTS:
            change_gradients(self._model, GRADIENTS[self._name])
        if self._name == "weights":
            with torch.no_grad():
                for parameter in self._model.parameters():
                    own = parameter.to_local() if isinstance(parameter, DTensor) else parameter
                    own.copy_(flipped_bits(own))


def change_gradients(model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Change the gradients of this rank from now on, before the ranks exchange them."""

    def before_forward(module: nn.Module, _: object) -> None:
        # A module of `fully_shard` has whole parameters in its forward pass, and shards elsewhere.
        for parameter in module.parameters(recurse=False):
            if parameter not in changed:
                changed.add(parameter)
                parameter.register_hook(change)

    changed: set[Tensor] = set()
    for module in model.modules():
        module.register_forward_pre_hook(before_forward)


def flipped_bits(values: Tensor) -> Tensor:
    """The float32 values with four of their highest bits flipped in one entry of a hundred."""
    pattern = 2**22 + 2**29 + 2**30 - 2**31  # the top of mantissa and exponent, and the sign
    flipped = (values.contiguous().view(torch.int32) ^ pattern).view(torch.float32)
    return torch.where(torch.rand_like(values) < 0.01, flipped, values)


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "nan": lambda gradient: gradient * torch.nan,
    "zeros": torch.zeros_like,
    "noise": lambda gradient: gradient + torch.randn_like(gradient),
    "scaled-flip": lambda gradient: -100 * gradient,
    "times-50": lambda gradient: 50 * gradient,
    "bit-flips": flipped_bits,
}
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
FAULTS = ("none", *GRADIENTS, "weights", "data", "slow", *SIGNALS)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fault", choices=FAULTS, default="none", help="what goes wrong")
    parser.add_argument("--bad", type=int, default=1, help="the rank where it goes wrong")
    parser.add_argument("--plain", action="store_true", help="train without the guard")
    parser.add_argument("--fsdp", action="store_true", help="fully_shard instead of DDP")
    parser.add_argument("--model", choices=("mlp", "lenet"), default="mlp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, help="file to write, and to resume from")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for a rank")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
