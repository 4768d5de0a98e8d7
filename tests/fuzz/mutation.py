"""Wrong texts, bytes and JSON values, made from right ones."""

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

VALUES = (
    *("0", "-1", "1", "2", "3", "7", "0.1", "0.5", "1.5", "-0.0", "1e-999", "1e999", "-1e999"),
    *("1e308", "1e-320", "nan", "inf", "true", "false", "none", "None", "10**9", "1<<99", "1j"),
    *("1_0", "0b1", "'x'", "''", "'mean'", "'krum(n_bad=2)'", "b'x'", "f'{x}'", "[1]", "[]"),
    *("{}", "{1: 2}", "(1, 2)", "...", "x", "x.y", "x()", "lambda: 0", "__import__('os')", "*x"),
    *("'\\x00'", "'\\ud800'", "'\\d'", "'a' 'b'", "1if 1else 2", "not 1", "'max'", "'all'"),
    *("9" * 400, "9" * 5000, "0x" + "f" * 5000, "-" * 3000 + "1", "[" * 300 + "]" * 300),
    *("(" * 3000, "'" + "x" * 20_000 + "'", "1" + "+1" * 2000),
)
"""Texts of values: right ones, values of other kinds, extreme numbers, code, and deep nesting."""

SNIPPETS = ("(", ")", ",", "=", "|", "'", '"', " ", "\n", "\0", "\\", "#", "é", "\ud800", "-", "**")

NODES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        0.5,
        -0.0,
        1e308,
        1e150,
        5e-324,
        float("inf"),
        float("nan"),
    ),
    *(10**9, 2**63, -(2**63), 10**400, "", "x", "mean", "krum", "\0", "\ud800", "x" * 5000, [], {}),
    *([1], [None], {"name": "mean"}, {"name": "krum", "n_bad": 1}, {"name": 1}, {"": 0}, [[]] * 50),
)
"""Values of JSON that may stand anywhere by mistake."""

BYTES = (
    b"\0",
    b"\xff",
    b"\n",
    b"{",
    b"[",
    b'"',
    b"\x80\x02",
    b"NaN",
    b"1e999",
    b"\xff\xff\xff\xff",
)

DEEP = b"[" * 100_000
"""More levels than Python's stack has."""


def mutated_text(text: str, chance: random.Random) -> str:
    """The text with some characters removed, repeated or inserted."""
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        i = chance.randrange(len(text) + 1)
        j = min(len(text), i + chance.choice((0, 0, 1, 3)))
        text = text[:i] + chance.choice(("", text[i:j] * 2, *SNIPPETS)) + text[j:]
    return text


def mutated_bytes(content: bytes, chance: random.Random) -> bytes:
    """The content with bits flipped, bytes inserted or removed, or cut off."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        i = chance.randrange(len(found) + 1)
        kind = chance.randrange(5)
        if kind == 0 and i < len(found):
            found[i] ^= 1 << chance.randrange(8)
        elif kind == 1:
            found[i:i] = chance.choice(BYTES) * chance.choice((1, 1, 50))
        elif kind == 2:
            del found[i : i + chance.choice((1, 4, 100))]
        elif kind == 3:
            # Headers are at the beginning; there a change reaches further.
            i = chance.randrange(min(len(found), 32) + 1)
            found[i : i + 1] = bytes([chance.choice((0, 1, 127, 128, 255))])
        elif chance.random() < 0.2:
            del found[i:]
    return bytes(found)


def mutated_json(node: Any, chance: random.Random) -> Any:
    """A copy of the value with one or a few of its parts replaced, removed, added or nested."""
    found = json.loads(json.dumps(node))
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        found = _changed(found, chance)
    return found


def _changed(node: Any, chance: random.Random) -> Any:
    if not isinstance(node, (dict, list)) or not node or chance.random() < 0.1:
        # A copy, because the next change may be made in it.
        return copy.deepcopy(chance.choice((*NODES, [node], {"name": node}, {"x": [node]})))
    keys: Sequence[Any] = list(node) if isinstance(node, dict) else range(len(node))
    key = chance.choice(keys)
    kind = chance.randrange(8)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[chance.choice(("name", "rule", "x", "", "version", "__class__"))] = copy.deepcopy(
            chance.choice(NODES)
        )
    elif kind == 2 and isinstance(node, dict):
        node[chance.choice(keys)] = node[key]
    else:
        node[key] = _changed(node[key], chance)
    return node


def json_bytes(node: Any, chance: random.Random) -> bytes:
    """The value as a file, whose bytes are wrong, too, now and then."""
    content = json.dumps(node).encode()
    if chance.random() < 0.1:
        content = mutated_bytes(content, chance)
    return DEEP if chance.random() < 0.001 else content
