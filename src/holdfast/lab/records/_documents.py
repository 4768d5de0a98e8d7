"""What all files of one JSON object have in common: a format, a version, and perhaps a configuration with its hash."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from holdfast.checks import failure
from holdfast.errors import NewerRecordError
from holdfast.lab.records._writing import config_hash

LARGEST: Final = 1e150
"""Squares and sums of greater numbers leave the floats."""

DEEPEST: Final = 100
"""How deep values may be nested; no file of ours comes near."""

_UNSHOWN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What neither a file nor a figure can hold."""


def parse_json(text: bytes) -> Any:
    """The values in a text.

    Raises:
        ValueError: if it is no JSON.
    """
    try:
        return json.loads(text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def check_plain(node: object, *, largest: float = LARGEST, depth: int = DEEPEST) -> None:
    """There is nothing in these values that a report could stumble over; a configuration, with which it does not compute, may have any finite number.

    Raises:
        ValueError: if there is.
    """
    if isinstance(node, str):
        if _UNSHOWN.search(node):
            raise ValueError(f"characters that cannot be shown: {short(node)}")
    elif isinstance(node, (int, float)):
        if not abs(node) <= largest:
            raise ValueError("a number beyond all measure")
    elif isinstance(node, (dict, list)):
        if depth == 0:
            raise ValueError("values nested too deeply")
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            check_plain(key)
            check_plain(
                value, largest=sys.float_info.max if key == "config" else largest, depth=depth - 1
            )


def read_json(path: str | os.PathLike[str], name: str) -> object:
    """What a file holds; `name` says in messages what it should be."""
    try:
        return parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise failure(name, "be a whole file", f"{path} ({error})") from error


def short(value: object) -> str:
    """What a value is, for a message that must not become a page."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def check_document(data: object, name: str, form: str, version: int) -> dict[str, Any]:
    """The data, if they are a mapping of this format and of a version that is known.

    Raises:
        NewerRecordError: if a later release wrote it.
        ValueError: if it is something else.
    """
    if (
        not isinstance(data, dict)
        or data.get("format") != form
        or not isinstance(data.get("version"), int)
    ):
        raise failure(name, "be written by holdfast", type(data).__name__)
    if data["version"] > version:
        raise NewerRecordError(
            f"`{name}` must be of version {version} or older, got {data['version']}; update holdfast."
        )
    try:
        check_plain(data)
    except ValueError as error:
        raise failure(name, "be what holdfast writes", error) from error
    return data


def check_config(data: dict[str, Any], name: str) -> None:
    """There is a configuration, and its hash is right."""
    if not isinstance(data.get("config"), dict):
        raise failure(name, "have a configuration", sorted(data))
    if data.get("hash") != config_hash(data["config"]):
        raise failure(name, "be as it was written", "a configuration that does not have its hash")
