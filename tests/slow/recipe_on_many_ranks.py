"""A section of docs/recipes.md on one of several ranks, of which rank 1 sends bad gradients.

torchrun --nproc-per-node 3 tests/slow/recipe_on_many_ranks.py TITLE
"""

import json
import os
import sys
import warnings
from typing import Any

import torch.distributed as dist
from torch import nn

import holdfast.distributed
from holdfast.distributed import Guard
from tests.test_recipes import blocks

BAD = 1


def main(title: str) -> None:
    guards: list[Guard] = []
    attach = holdfast.distributed.guard

    def guard(model: nn.Module, *args: Any, **kwargs: Any) -> Guard:
        """The guard, and a fault that begins with it."""
        guards.append(attach(model, *args, **kwargs))
        if dist.get_rank() == BAD:
            for parameter in model.parameters():
                parameter.register_hook(lambda gradient: -100 * gradient)
        return guards[-1]

    holdfast.distributed.guard = guard
    names: dict[str, Any] = {"__name__": "recipe"}
    parts = blocks()
    exec(parts["Recipes: Lightning, Accelerate, Hugging Face"], names)
    exec(parts[title], names)
    (watch,) = guards
    suspects = [suspect.row for suspect in watch.suspects()]
    found = {"steps": watch.n_steps, "counts": watch.counts.tolist(), "suspects": suspects}
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, found)
    assert every == [found] * len(every)
    if dist.get_rank() == 0:
        sys.stdout.write(f"found {json.dumps(found)}\n")
    dist.destroy_process_group()
    # The frameworks keep references to the process group, which may abort a process at its end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
