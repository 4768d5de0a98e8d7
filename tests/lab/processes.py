"""Work for processes that are killed, or cannot write to the disk.

The tests start them with :func:`in_process`, from the fork server of sweeps, which has torch
already. This module imports no test tools, because every such process imports it.
"""

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import holdfast.lab.training._run as module
from holdfast.lab.config import Config
from holdfast.lab.data import load
from holdfast.lab.records import Journal, read_record, save_checkpoint
from holdfast.lab.records._files import write_atomically
from holdfast.lab.sweep._process import CONTEXT
from holdfast.lab.training import run


def in_process(work: Callable[..., None], *arguments: Any) -> int | None:
    """Call the function in a process of its own, and return the exit code."""
    process = CONTEXT.Process(target=work, args=arguments)
    process.start()
    process.join(300)
    return process.exitcode


def limit_file_size(n_bytes: int) -> None:
    """Let every file that grows beyond this size raise what a full disk raises."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))


def save_to_full_disk(path: Path) -> None:
    """Exit with 7 if a checkpoint that does not fit raises an OSError."""
    limit_file_size(10_000)
    try:
        save_checkpoint(path, {"new": torch.ones(10_000)})
    except OSError:
        os._exit(7)


def run_on_full_disk(config: Config, limits: dict[Path, int], results: Path) -> None:
    """Run the configuration in each folder with its limit, and write a line about each result."""
    lines = []
    for folder, limit in limits.items():
        limit_file_size(limit)
        try:
            run(config, folder, checkpoint_seconds=0)
            lines.append(f"{folder.name} ended")
        except OSError as error:
            lines.append(f"{folder.name} OSError {Path(error.filename).name}")
        except Exception as error:
            lines.append(f"{folder.name} {type(error).__name__} {error}")
    results.write_text("\n".join(lines))


def die_while_writing(path: Path) -> None:
    def write(new: Path) -> None:
        new.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

    write_atomically(path, write)


def hold_journal(folder: Path, report: Any) -> None:
    """Hold the journal until the process is killed, or report why that is not possible."""
    try:
        with Journal(folder):
            report.send("held")
            time.sleep(600)
    except OSError as error:
        report.send(str(error))


def kill_at_worst_moments(config: Config, folder: Path) -> None:
    """Run with kills before and after each important moment, then to the end; and once whole."""
    _run_whole(config, folder.with_name("whole"))
    for name in ("create_record", "_restore", *["_save"] * config.n_steps):
        _die_in(name, config, folder, before=True)
        _die_in(name, config, folder, before=False)
    _die_in("_save", config, folder, before=False)  # the last one: only the end is missing
    assert read_record(folder).end is None
    run(config, folder, checkpoint_seconds=0)


def kill_at_random(config: Config, folder: Path, n_kills: int) -> None:
    """Run with kills at random moments, then to the end; and once whole."""
    _run_whole(config, folder.with_name("whole"))
    chance = random.Random(0)
    for _ in range(n_kills):
        child = _fork(lambda: run(config, folder, checkpoint_seconds=0))
        time.sleep(chance.uniform(0.01, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    run(config, folder, checkpoint_seconds=0)


def _run_whole(config: Config, folder: Path) -> None:
    """Run without kills, and keep the data in memory, so that kills hit the run."""
    torch.set_num_threads(1)  # threads do not survive a fork
    data = load(config.data)
    module.__dict__["load"] = lambda *_, **__: data
    run(config, folder)


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    return child


def _die_in(name: str, config: Config, folder: Path, *, before: bool) -> None:
    """Let a process end before or after its first call of a function of the module."""
    original = getattr(module, name)

    def replacement(*given: Any, **options: Any) -> None:
        if not before:
            original(*given, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        setattr(module, name, replacement)
        run(config, folder, checkpoint_seconds=0)

    assert os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1]) == -9, (name, before)
