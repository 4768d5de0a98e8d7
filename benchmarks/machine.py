"""What the figures were measured on."""

import platform
from pathlib import Path
from typing import Any

import torch

import holdfast


def describe() -> dict[str, Any]:
    """Processor, cores, memory and versions."""
    info = Path("/proc/cpuinfo")
    models = (
        {
            line.split(":")[1].strip()
            for line in info.read_text().splitlines()
            if "model name" in line
        }
        if info.exists()
        else set()
    )
    memory = Path("/proc/meminfo")
    gib = int(memory.read_text().split()[1]) / 2**20 if memory.exists() else None
    return {
        "processor": ", ".join(sorted(models)) or platform.processor(),
        "cores": torch.get_num_threads(),
        "memory_gib": None if gib is None else round(gib),
        "vector_units": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "holdfast": holdfast.__version__,
    }
