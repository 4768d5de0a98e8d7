"""One rank of a guarded training whose gradients take most of the time on their way.

The first argument is the timeout of the process group in seconds.
"""

import signal
import sys
from datetime import timedelta

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import guard, init_process_group

if __name__ == "__main__":
    signal.alarm(150)  # if the test was killed
    torch.set_num_threads(1)
    init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
    model = DistributedDataParallel(nn.Linear(1000, 1000))
    guard(model)
    for step in range(1000):
        model(torch.ones(1, 1000)).sum().backward()
        sys.stdout.write(f"step {step}\n")
        sys.stdout.flush()
