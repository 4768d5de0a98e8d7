"""Runs of examples/ddp_guard.py one after the other, with one start of the ranks for all of them.

torchrun --nproc-per-node 4 tests/slow/many_runs.py "" "--fault nan" "--plain"
"""

import gc
import json
import sys
from datetime import timedelta

import torch.distributed as dist
from examples.ddp_guard import arguments, train

from holdfast.distributed import init_process_group


def main(lines: list[str]) -> None:
    init_process_group("gloo", timeout=timedelta(seconds=30))
    for line in lines:
        found = train(arguments(line.split()))
        if dist.get_rank() == 0:
            sys.stdout.write(f"found {json.dumps(found | {'run': line})}\n")
    gc.collect()  # as in the example
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
