"""`holdfast train` and `holdfast resume` under torchrun: every rank computes one row."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from holdfast.checks import failure
from holdfast.distributed import Ranks, init_process_group
from holdfast.lab.cli._console import error_console
from holdfast.lab.cli._errors import ExitCode
from holdfast.lab.cli._lines import Form, Lines
from holdfast.lab.cli._runs import (
    Screen,
    command_line,
    fetch_missing,
    note_defenseless,
    parse_device,
    screen_for,
)
from holdfast.lab.config import Config, config_to_json
from holdfast.lab.records import Record
from holdfast.lab.sweep import PlannedRun
from holdfast.lab.training import follow, run


def join_ranks(given: Mapping[str, Any], config: Config | None = None) -> Ranks:
    """Meet the other ranks, which must have been given the same configuration."""
    if config is not None:
        check_one_row_per_rank(config)
    device = own_device(given["device"] or "cpu")
    init_process_group()
    common = {} if config is None else {"configuration": json.dumps(config_to_json(config))}
    ranks = Ranks(common, device=device)
    try:
        ranks.together(lambda: parse_device(str(device)))
    except BaseException:
        ranks.close()
        raise
    return ranks


def own_device(text: str) -> torch.device:
    """The device of this rank: on a machine with several accelerators, its own."""
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise failure("--device", "be one that torch knows", f"{text} ({error})") from None
    if device.type == "cpu" or ":" in text:
        return device
    return torch.device(device.type, int(os.environ.get("LOCAL_RANK", "0")))


def check_one_row_per_rank(config: Config) -> None:
    """Refuse a number of rows other than that of the ranks, and simulated workers."""
    n = int(os.environ["WORLD_SIZE"])
    if config.workers is not None:
        raise failure("workers", "not be simulated under torchrun", config.n_rows)
    if config.n_rows != n:
        raise failure(
            "n_rows", f"be {n} under torchrun, one row for each of {n} ranks", config.n_rows
        )


def train_on_ranks(
    config: Config, folder: Path, given: Mapping[str, Any], ranks: Ranks
) -> tuple[Record | None, list[ExitCode]]:
    """Train one run; returns the record on rank 0, and the signal that has stopped it, if any."""
    if given["threads"] is not None:
        torch.set_num_threads(given["threads"])
    planned = PlannedRun(config, folder)
    options: dict[str, Any] = {"data_dir": given["data_dir"], "device": ranks.device}
    with closing(_screen(given, ranks)) as screen, _signals(ranks) as received:
        options["stop"] = lambda: bool(received)
        is_fetching = os.environ.get("LOCAL_RANK", "0") == "0"  # one process per machine
        ranks.together(lambda: fetch_missing([planned], screen, given) if is_fetching else None)
        if not ranks.is_first:
            follow(config, ranks, **options)
            return None, received
        note_defenseless([planned], given)
        screen.planned([planned])
        record = run(
            config,
            folder,
            **options,
            checkpoint_seconds=given["checkpoint_seconds"],
            tensorboard=given["tensorboard"],
            on_start=lambda _: screen.began(planned),
            watchers=[lambda entry: screen.stepped(planned, entry)],
            command=command_line(),
            ranks=ranks,
        )
    return record, received


def resume_on_ranks(command: str) -> str:
    """The command that resumes a run, given that for one process."""
    n, here = os.environ["WORLD_SIZE"], os.environ.get("LOCAL_WORLD_SIZE")
    return f"torchrun --nproc-per-node {n} -m {command}" if n == here else "the same command again"


def _screen(given: Mapping[str, Any], ranks: Ranks) -> Screen:
    if ranks.is_first:
        return screen_for(quiet=given["quiet"], json=given["json"])
    return Lines(Form.QUIET)


@contextmanager
def _signals(ranks: Ranks) -> Iterator[list[ExitCode]]:
    """Receive SIGINT and SIGTERM, of which a rank may get several for one Ctrl-C.

    The terminal and torchrun both send them. torchrun kills the ranks after 30 seconds.
    """
    received: list[ExitCode] = []

    def receive(number: int, _: FrameType | None) -> None:
        if not received and ranks.is_first:
            error_console().print("\nStopping after this step.", style="yellow")
        received.append(ExitCode.TERMINATED if number == signal.SIGTERM else ExitCode.INTERRUPTED)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
