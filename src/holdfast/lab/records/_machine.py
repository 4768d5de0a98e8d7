"""Where a run took place."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def versions() -> dict[str, str]:
    """The releases that a result may depend on."""
    try:
        own = version("holdfast")
    except PackageNotFoundError:  # run from a checkout that is not installed
        own = "unknown"
    return {"holdfast": own, "torch": str(torch.__version__), "python": platform.python_version()}


def machine(device: torch.device) -> dict[str, str | int]:
    """What a time, or the last bits of a result, may depend on; nothing that tells whose machine it is."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
