"""JSON documents, read by one checked constructor."""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Final, Literal, Self, get_args, get_origin, get_type_hints

from holdfast.checks import failure
from holdfast.errors import NewerRecordError
from holdfast.lab.records._writing import config_hash

LARGEST: Final = 1e150
"""Squares and sums of larger numbers overflow."""

DEEPEST: Final = 100
"""Levels of nesting that are read."""

_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that neither a UTF-8 file nor an SVG can hold."""

_NOUNS: Final = {str: "a text", int: "a whole number", float: "a number"}


@dataclass(frozen=True, kw_only=True)
class Document:
    """The result of one configuration, and where it was computed."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1

    hash: str
    config: dict[str, Any]
    started: str | None = None
    versions: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    command: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; fields at their default are left out."""
        return {"format": self.FORMAT, "version": self.VERSION, **_plain(self)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read the object that :meth:`to_json` returned.

        Raises:
            NewerRecordError: if a later version wrote it.
            ValueError: if it is damaged.
        """
        name = cls.FORMAT.removeprefix("holdfast ")
        content = check_document(data, name, cls.FORMAT, cls.VERSION)
        given = {key: content[key] for key in content if key not in ("format", "version")}
        document = build(cls, given, name)
        assert isinstance(document, cls)
        if document.hash != config_hash(document.config):
            raise failure(name, "have the hash of its configuration", short(document.hash))
        return document


def parse_json(text: bytes) -> Any:
    """Parse UTF-8 text as JSON; raises ValueError if it is not."""
    try:
        return json.loads(text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def read_json(path: str | os.PathLike[str], name: str) -> object:
    """Parse a file; `name` says in messages what it should contain."""
    try:
        return parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise failure(name, "be a complete JSON file", f"{path} ({error})") from error


def check_document(data: object, name: str, form: str, version: int) -> dict[str, Any]:
    """Return `data` if it is an object of this format, in a known version, with plain values."""
    if not isinstance(data, dict) or data.get("format") != form:
        raise failure(name, "be written by holdfast", type(data).__name__)
    if not isinstance(data.get("version"), int):
        raise failure(name, "be written by holdfast", f"version {short(data.get('version'))}")
    if data["version"] > version:
        got = f"got {data['version']}; update holdfast."
        raise NewerRecordError(f"`{name}` must be of version {version} or older, {got}")
    try:
        _check_plain(data)
    except ValueError as error:
        raise failure(name, "have plain values", error) from error
    return data


def build(kind: Any, data: object, name: str) -> object:
    """Construct a value of the annotated type `kind` from JSON; `name` names it in messages.

    Supports dataclasses, `tuple[T, ...]`, `dict[str, T]`, `Literal`, `T | None`, str, int,
    float, `str | float` and Any. Numbers keep their type.

    Raises:
        ValueError: if `data` does not fit; the message names the field.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if origin is UnionType:
        kinds = [one for one in arguments if one is not type(None)]
        if data is None and len(kinds) < len(arguments):
            return None
        is_number = isinstance(data, (int, float))
        return build(kinds[-1] if is_number else kinds[0], data, name)
    if origin is Literal:
        return _expect(data in arguments, data, name, f"one of {', '.join(arguments)}")
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise failure(name, "be a list", short(data))
        return tuple(build(arguments[0], value, name) for value in data)
    is_mapping = origin in (dict, Mapping)
    if is_mapping or is_dataclass(kind):
        if not isinstance(data, Mapping):
            raise failure(name, "be a mapping", short(data))
        if is_mapping:
            return {str(key): build(arguments[1], value, name) for key, value in data.items()}
        _check_fields(kind, data, name)
        hints = get_type_hints(kind)
        return kind(**{key: build(hints[key], value, key) for key, value in data.items()})
    is_right = isinstance(data, (int, float) if kind is float else kind)
    is_small = not isinstance(data, (int, float)) or abs(data) <= LARGEST  # NaN is not
    return _expect(is_right and is_small and not isinstance(data, bool), data, name, _NOUNS[kind])


def short(value: object) -> str:
    """Return a `repr` of at most about 80 characters, for messages."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _expect(is_right: bool, data: object, name: str, noun: str) -> object:
    if not is_right:
        raise failure(name, f"be {noun}", short(data))
    return data


def _check_fields(kind: Any, data: Mapping[str, Any], name: str) -> None:
    known = {entry.name: entry for entry in fields(kind)}
    needed = [e.name for e in known.values() if e.default is MISSING is e.default_factory]
    wrong = [f"unknown {short(key)}" for key in data if key not in known]
    wrong += [f"no {key!r}" for key in needed if key not in data]
    if wrong:
        raise failure(name, f"have the fields {', '.join(known)}", wrong[0])


def _plain(node: object) -> Any:
    if is_dataclass(node):
        values = [(entry, getattr(node, entry.name)) for entry in fields(node)]
        return {entry.name: _plain(value) for entry, value in values if value is not entry.default}
    return [_plain(value) for value in node] if isinstance(node, tuple) else node


def _check_plain(node: object, *, largest: float = LARGEST, depth: int = DEEPEST) -> None:
    """Check that a report can compute with these values and show them."""
    if isinstance(node, str):
        if _UNPRINTABLE.search(node):
            raise ValueError(f"unprintable characters in {short(node)}")
    elif isinstance(node, (int, float)):
        if not abs(node) <= largest:
            raise ValueError(f"a number beyond {largest:g}")
    elif isinstance(node, (dict, list, tuple)):
        if depth == 0:
            raise ValueError("values nested too deeply")
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            _check_plain(key)
            # Nobody computes with a configuration; it may hold any finite number.
            bound = sys.float_info.max if key == "config" else largest
            _check_plain(value, largest=bound, depth=depth - 1)
