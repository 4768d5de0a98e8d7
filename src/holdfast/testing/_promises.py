"""Promises by name, and the sentence that says which one was broken."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from holdfast.registry import unknown_name

S = TypeVar("S")

Promises = Mapping[str, Callable[[S], None]]
"""Checks by name; each raises :class:`BrokenPromiseError` if its promise is broken."""


class BrokenPromiseError(Exception):
    """A promise is broken; the message says how."""


def ensure(condition: bool, how: str) -> None:
    """Raise :class:`BrokenPromiseError` with the sentence `how` unless the condition holds."""
    if not condition:
        raise BrokenPromiseError(how)


def ensure_refuses(call: Callable[[], object], name: str, of: str) -> None:
    """Ensure that the call raises a ValueError about the argument `name`."""
    try:
        call()
    except ValueError as error:
        if f"`{name}`" not in str(error):
            raise BrokenPromiseError(
                f"the error for {of} must name `{name}`, got: {error}"
            ) from error
        return
    raise BrokenPromiseError(f"{of} must be refused by a ValueError that names `{name}`")


def keep_promises(
    promises: Promises[S], subject: S, what: object, lacks: Collection[str] = ()
) -> None:
    """Check all promises except those in `lacks`, which must be broken.

    Raises:
        AssertionError: for the first promise that is broken, or lacked and kept.
    """
    for name in lacks:
        if name not in promises:
            raise unknown_name("lacks", promises, name)
    for name, check in promises.items():
        how = _how_broken(check, subject)
        if name in lacks:
            if how is None:
                raise AssertionError(f"{what!r} keeps the promise {name!r}; it must not lack it.")
        elif how is not None:
            raise AssertionError(f"{what!r} breaks the promise {name!r}: {how}.") from how


def _how_broken(check: Callable[[S], None], subject: S) -> Exception | None:
    try:
        check(subject)
    except BrokenPromiseError as broken:
        return broken
    except Exception as error:
        raised = BrokenPromiseError(f"it raises {type(error).__name__}: {str(error).rstrip('.')}")
        raised.__cause__ = error
        return raised
    return None


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether dtype, shape and all bytes are equal: -0.0 differs from 0.0, NaN equals itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
