"""What all files of one JSON object have in common: a format, a version, and perhaps a configuration with its hash."""

import json
import os
from pathlib import Path
from typing import Any

from holdfast._checks import failure
from holdfast.errors import NewerRecordError
from holdfast.records._writing import config_hash


def read_json(path: str | os.PathLike[str], name: str) -> object:
    """What a file holds; `name` says in messages what it should be."""
    try:
        return json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
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
    if not isinstance(data, dict) or data.get("format") != form or not isinstance(data.get("version"), int):
        raise failure(name, "be written by holdfast", type(data).__name__)
    if data["version"] > version:
        raise NewerRecordError(f"`{name}` must be of version {version} or older, got {data['version']}; update holdfast.")
    return data


def check_config(data: dict[str, Any], name: str) -> None:
    """There is a configuration, and its hash is right."""
    if not isinstance(data.get("config"), dict):
        raise failure(name, "have a configuration", sorted(data))
    if data.get("hash") != config_hash(data["config"]):
        raise failure(name, "be as it was written", "a configuration that does not have its hash")
