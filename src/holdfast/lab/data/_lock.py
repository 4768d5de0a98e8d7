"""One fetch at a time into one folder."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from holdfast.lab.data._store import storing

_PAUSE = 0.1

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def locked(folder: Path, when_busy: Callable[[], None]) -> Iterator[None]:
    """Makes the folder and holds it alone; `when_busy` is called once if another process or thread has it first.

    The system releases the lock of a process that dies. The empty `.lock` stays, because removing it would let a third process
    lock another file of the same name.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("ab")
    with file:
        with storing(folder):
            free = _try_lock(file)
        if not free:
            when_busy()
        while not free:
            time.sleep(_PAUSE)
            free = _try_lock(file)
        yield
