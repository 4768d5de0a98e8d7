"""Writing a record: `run.json` once, `metrics.jsonl` line by line."""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, final

from holdfast.checks import failure
from holdfast.errors import RunInUseError
from holdfast.lab.records._files import write_atomically

if sys.platform != "win32":
    import fcntl

VERSION: Final = 1
"""Of the record's form; a reader refuses what is newer than itself."""

FORMAT: Final = "holdfast run"
RUN_FILE: Final = "run.json"
METRICS_FILE: Final = "metrics.jsonl"


def config_hash(config: Mapping[str, Any]) -> str:
    """64 hexadecimal digits that tell one configuration from every other.

    Example:
        >>> config_hash({"seed": 0, "rows": 32}) == config_hash({"rows": 32, "seed": 0}) != config_hash({"rows": 32, "seed": 1})
        True
    """
    try:
        text = json.dumps(_equal_numbers_alike(config), sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise failure(
            "config", "not be nested so deeply", "more levels than can be followed"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()


def _equal_numbers_alike(node: Any) -> Any:
    """The same with whole numbers for 1.0 and its like, because 1 and 1.0 are equal."""
    if isinstance(node, Mapping):
        return {key: _equal_numbers_alike(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_equal_numbers_alike(value) for value in node]
    return int(node) if isinstance(node, float) and node.is_integer() else node


def create_record(
    folder: str | os.PathLike[str], config: Mapping[str, Any], **provenance: Any
) -> None:
    """Begin a record: the folder, and in it `run.json` with the configuration, its hash and where it comes from."""
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


@final
class Journal:
    """The open `metrics.jsonl` of a run, which one process at a time may hold.

    Every entry is handed to the system as one line at once, so a killed process leaves whole lines and at most one torn one at the end.

    Args:
        folder: the run's folder.

    Raises:
        RunInUseError: if another process holds it.
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
        """How much has been written."""
        return os.fstat(self._file.fileno()).st_size

    def cut(self, n_bytes: int) -> None:
        """Forget what was written after the first `n_bytes`."""
        if n_bytes > self.n_bytes:
            raise failure(
                "folder",
                f"hold a {METRICS_FILE} of at least {n_bytes} bytes, as its checkpoint says",
                self.n_bytes,
            )
        self._file.seek(max(0, n_bytes - 1))
        if n_bytes and self._file.read(1) != b"\n":
            raise failure(
                "folder",
                f"hold a {METRICS_FILE} with a line that ends at byte {n_bytes}, as its checkpoint says",
                self._path,
            )
        os.ftruncate(self._file.fileno(), n_bytes)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry."""
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def sync(self) -> None:
        """Wait until all entries are on the disk."""
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
    """Take the file for this process; the lock goes with the process, however that ends. Not on Windows."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInUseError(
                f"`folder` must not be in use by another process, got {folder}."
            ) from None
