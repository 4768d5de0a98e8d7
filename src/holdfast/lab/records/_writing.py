"""Writing a record: `run.json` once, `metrics.jsonl` line by line."""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, final

import torch

from holdfast import __version__
from holdfast.checks import failure
from holdfast.errors import RunInUseError
from holdfast.lab.records._files import write_atomically

if sys.platform != "win32":
    import fcntl

VERSION: Final = 1
"""Version of the format; readers refuse newer ones."""

FORMAT: Final = "holdfast run"
RUN_FILE: Final = "run.json"
METRICS_FILE: Final = "metrics.jsonl"


def config_hash(config: Mapping[str, Any]) -> str:
    """Hash of a configuration, in 64 hexadecimal digits, independent of the order of its keys.

    Example:
        >>> config_hash({"seed": 0, "rows": 32}) == config_hash({"rows": 32, "seed": 0})
        True
    """
    try:
        text = json.dumps(_with_integers(config), sort_keys=True, separators=(",", ":"))
    except RecursionError:
        got = "more levels than can be followed"
        raise failure("config", "not be nested so deeply", got) from None
    return hashlib.sha256(text.encode()).hexdigest()


def _with_integers(node: Any) -> Any:
    """The node with 1 in place of 1.0: equal numbers shall have equal hashes."""
    if isinstance(node, Mapping):
        return {key: _with_integers(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_with_integers(value) for value in node]
    return int(node) if isinstance(node, float) and node.is_integer() else node


def create_record(
    folder: str | os.PathLike[str], config: Mapping[str, Any], **provenance: Any
) -> None:
    """Create the folder and its `run.json` with configuration, hash and provenance."""
    run = {
        "format": FORMAT,
        "version": VERSION,
        "hash": config_hash(config),
        "config": config,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **provenance,
    }
    text = json.dumps(run, indent=2) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_atomically(Path(folder) / RUN_FILE, lambda new: new.write_text(text))


def extend_record(
    folder: str | os.PathLike[str], config: Mapping[str, Any], *, command: list[str]
) -> None:
    """Give the run in the folder a configuration with more steps.

    Its `run.json` then lists the shorter one under `extended_from`.
    """
    path = Path(folder) / RUN_FILE
    run = json.loads(path.read_bytes())
    shorter = {key: run[key] for key in ("hash", "command") if key in run}
    shorter["n_steps"] = run["config"]["n_steps"]
    run["extended_from"] = [*run.get("extended_from", []), shorter]
    run |= {"hash": config_hash(config), "config": config, "command": command}
    text = json.dumps(run, indent=2) + "\n"
    write_atomically(path, lambda new: new.write_text(text))


@final
class Journal:
    """The open `metrics.jsonl` of a run, locked for this process.

    Every entry is written as one line at once; a killed process leaves whole lines and at most one
    incomplete line at the end.

    Args:
        folder: the run's folder.

    Raises:
        RunInUseError: if another process has it open.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / METRICS_FILE
        self._file: IO[bytes] = self._path.open("a+b", buffering=0)
        try:
            _lock(self._file, Path(folder))
        except BaseException:
            self._file.close()
            raise

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return os.fstat(self._file.fileno()).st_size

    def cut(self, n_bytes: int) -> None:
        """Drop everything after the first `n_bytes`."""
        required = f"hold a {METRICS_FILE}"
        if n_bytes > self.n_bytes:
            required += f" of at least {n_bytes} bytes, as its checkpoint says"
            raise failure("folder", required, self.n_bytes)
        self._file.seek(max(0, n_bytes - 1))
        if n_bytes and self._file.read(1) != b"\n":
            required += f" with a line that ends at byte {n_bytes}, as its checkpoint says"
            raise failure("folder", required, self._path)
        os.ftruncate(self._file.fileno(), n_bytes)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry."""
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def amend(self, entry: Mapping[str, Any]) -> None:
        """Replace the last line by a shorter one, padded with spaces.

        The file keeps its size, so that checkpoints stay valid and a kill leaves no part of a line.
        """
        content = self._path.read_bytes()
        start = content.rfind(b"\n", 0, len(content) - 1) + 1
        line = json.dumps(entry, allow_nan=False).encode().ljust(len(content) - start - 1)
        with self._path.open("r+b", buffering=0) as file:
            file.seek(start)
            file.write(line)

    def sync(self) -> None:
        """Flush all entries to the disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def _lock(file: IO[bytes], folder: Path) -> None:
    """Lock the file until this process ends or closes it; does nothing on Windows."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"`folder` must not be in use by another process, got {folder}."
            raise RunInUseError(message) from None


def versions() -> dict[str, str]:
    """Versions of the packages that results may depend on."""
    return {
        "holdfast": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


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
