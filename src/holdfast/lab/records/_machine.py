"""Versions and machine of a run."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def versions() -> dict[str, str]:
    """Versions of the packages that results may depend on."""
    try:
        own = version("holdfast")
    except PackageNotFoundError:  # imported from a checkout that is not installed
        own = "unknown"
    return {"holdfast": own, "torch": str(torch.__version__), "python": platform.python_version()}


def machine(device: torch.device) -> dict[str, str | int]:
    """What timings and the last bits of results may depend on; nothing that identifies a user."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }


def _processor() -> str:
    """Name of the processor, if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
