"""Loops over cases within one test."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming(*case: object) -> Iterator[None]:
    """Add the case to the traceback of whatever fails within."""
    try:
        yield
    except BaseException as error:  # pytest's own failures are no `Exception`
        error.add_note(f"in the case {', '.join(map(str, case))}")
        raise
