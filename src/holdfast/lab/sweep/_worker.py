"""A process that makes one run after the other."""

import os
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch

from holdfast.lab.config import config_from_json
from holdfast.lab.training import run

PAUSE = 0.25
"""Seconds between two steps that are told, evaluations apart."""


def work(pipe: Connection, n_threads: int) -> None:
    """Make the runs that come through the pipe, and tell how they go, until None comes or the other end is gone."""
    torch.set_num_threads(n_threads)
    try:
        while (job := pipe.recv()) is not None:
            pipe.send(_outcome(pipe, job))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _outcome(pipe: Connection, job: Mapping[str, Any]) -> dict[str, Any]:
    """What became of one run."""
    told = 0.0

    def watch(entry: Mapping[str, Any]) -> None:
        nonlocal told
        if "accuracy" in entry or time.monotonic() - told >= PAUSE:
            told = time.monotonic()
            pipe.send(
                {"entry": {key: entry[key] for key in ("step", "loss", "accuracy") if key in entry}}
            )

    try:
        run(
            config_from_json(job["config"]),
            job["folder"],
            data_dir=job["data_dir"],
            device=job["device"],
            watchers=[watch],
            stop=pipe.poll,  # while a run is made nothing comes but the wish to stop, or the end of whoever would wish
            command=job["command"],
        )
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # whatever it is, the other runs shall go on
        return {"failed": reason_of(error)}
    return {"done": os.fspath(job["folder"])}


def reason_of(error: Exception) -> str:
    """What went wrong, in one line."""
    kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())
