"""Short names of configuration objects, and their conversion to and from JSON.

`krum(n_bad=2)` is the class named `krum` with these arguments. `mixing(n_bad=3) | geometric-median`
passes the right side to the wrapper on its left.
"""

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from holdfast.errors import UnknownNameError

T = TypeVar("T")
M = TypeVar("M")

_FORM = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
MOST_STAGES = 20
"""A longer pipeline is a mistake, and would exhaust the stack."""

_WORDS = {"true": True, "false": False, "none": None}


class Names(Mapping[str, T]):
    """The members of one family by their short names, in order of registration.

    Args:
        kind: the word for a member in messages ("rule").
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._members: dict[str, T] = {}

    def register(self, member: M) -> M:
        """Add a member: used as a decorator where the member is defined.

        Its short name is its own attribute `name`; a function without one has its name with
        hyphens.
        """
        own = vars(member).get("name")
        name = str(own or getattr(member, "__name__", "").replace("_", "-"))
        if name in self._members:
            raise _failure("name", f"be that of one {self._kind} only", repr(name))
        self._members[name] = member  # type: ignore[assignment]
        return member

    @property
    def names(self) -> list[str]:
        """All short names in alphabetical order."""
        return sorted(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str, default: Any = None) -> Any:
        """The member of this short name, or the default."""
        return self._members.get(name, default)

    def __getitem__(self, name: str) -> T:
        """The member of this short name."""
        if not isinstance(name, str) or name not in self._members:
            raise unknown_name(self._kind, self.names, name)
        return self._members[name]


class Registry(Names[type[T]]):
    """The classes of one family, which texts and JSON name.

    Members are final dataclasses with a class attribute `name`. A class attribute `one_of` lists
    optional fields of which one must be given.

    Args:
        kind: the word for a member in messages ("rule").
        inner: the field in which a wrapper holds the object that it wraps, if there are wrappers.
    """

    def __init__(self, kind: str, *, inner: str = "") -> None:
        super().__init__(kind)
        self._inner = inner

    def parse(self, text: str) -> T:
        """Return the object for a text such as `"mixing(n_bad=3) | geometric-median"`."""
        if not isinstance(text, str):
            raise _failure(self._kind, "be a name like 'krum(n_bad=2)'", repr(text))
        stages = [self._stage(stage, text) for stage in text.split("|")]
        if len(stages) > MOST_STAGES:
            raise _failure(self._kind, f"have at most {MOST_STAGES} stages", len(stages))
        name, arguments = stages.pop()
        data: dict[str, Any] = {"name": name, **arguments}
        for name, arguments in reversed(stages):
            data = {"name": name, **arguments, self._inner: data}
        return self.from_json(data)

    def _stage(self, stage: str, text: str) -> tuple[str, dict[str, Any]]:
        matched = _FORM.fullmatch(stage)
        if matched is None:
            raise _failure(self._kind, "have the form 'name(argument=value) | name'", repr(text))
        self[matched.group(1)]  # an unknown name is the likelier mistake, so it is reported first
        name, values = parse_call(stage, self._kind)
        for reserved in ("name", self._inner):
            if reserved in values:
                raise ValueError(
                    f"`{name}` must be given only its own arguments, got {reserved!r}; "
                    f"use '|' to wrap a {self._kind}."
                )
        return name, values

    def format(self, member: T) -> str:
        """Return the text that :meth:`parse` turns into an equal object, without default values."""
        self._check_member(member)
        arguments, inner = [], ""
        for field in _fields(member):
            value = getattr(member, field.name)
            if field.name == self._inner:
                inner = f" | {self.format(value)}"
            elif value != field.default:
                arguments.append(f"{field.name}={value!r}")
        listed = f"({', '.join(arguments)})" if arguments else ""
        return f"{vars(type(member))['name']}{listed}{inner}"

    def to_json(self, member: T) -> dict[str, Any]:
        """Return a mapping of plain values: the short name and every field."""
        self._check_member(member)
        data: dict[str, Any] = {"name": vars(type(member))["name"]}
        for field in _fields(member):
            value = getattr(member, field.name)
            data[field.name] = self.to_json(value) if field.name == self._inner else value
        return data

    def from_json(self, data: Mapping[str, Any]) -> T:
        """Return the object for a mapping of :meth:`to_json`."""
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise _failure(self._kind, "be a mapping with a 'name'", repr(data))
        member = self[data["name"]]
        arguments = {key: value for key, value in data.items() if key != "name"}
        self._check_arguments(data["name"], member, arguments)
        if self._inner in arguments and isinstance(arguments[self._inner], Mapping):
            arguments[self._inner] = self.from_json(arguments[self._inner])
        return member(**arguments)

    def _check_member(self, member: object) -> None:
        if self._members.get(str(vars(type(member)).get("name"))) is not type(member):
            raise _failure(self._kind, "be an object of a registered class", repr(member))

    def _check_arguments(self, name: str, member: type[T], arguments: Mapping[str, Any]) -> None:
        known = {field.name: field for field in _fields(member)}
        for key in arguments:
            if key == self._inner and key not in known:
                raise ValueError(f"`{name}` must stand last, because it wraps no {self._kind}.")
            if key not in known:
                raise unknown_argument(name, [one for one in known if one != self._inner], key)
        missing = [
            key for key, field in known.items() if field.default is MISSING and key not in arguments
        ]
        if missing == [self._inner]:
            raise ValueError(
                f"`{name}` must be followed by the {self._kind} it wraps, "
                f"as in '{name}(...) | {self._kind}'."
            )
        missing = [key for key in missing if key != self._inner]
        wanted = " and ".join(missing)
        one_of: tuple[str, ...] = getattr(member, "one_of", ())
        if not missing and all(arguments.get(key) is None for key in one_of):
            missing, wanted = list(one_of), " or ".join(one_of)
        if missing:
            raise ValueError(f"`{name}` must be given {wanted}, as in '{name}({missing[0]}=...)'.")


def unknown_name(kind: str, names: Iterable[str], got: object) -> UnknownNameError:
    """The error for a `kind` that is not among the names, with the closest of them."""
    names = list(names)
    listed = f"`{kind}` must be one of {', '.join(names)}"
    return UnknownNameError(f"{listed}, got {_short(repr(got))}{suggestion(got, names)}.")


def unknown_argument(name: str, known: Iterable[str], got: str) -> ValueError:
    """The error for an argument that `name` does not take, with the closest of those it takes."""
    known = list(known)
    listed = f"only {', '.join(known)}" if known else "no arguments"
    return _failure(name, f"be given {listed}", f"{_short(repr(got))}{suggestion(got, known)}")


def suggestion(got: object, names: Iterable[str]) -> str:
    """The end of a message about a name that does not exist, empty if none resembles it.

    Example:
        >>> suggestion("nbad", ["n_bad", "bad_fraction"])
        " (did you mean 'n_bad'?)"
        >>> suggestion("learning_rate", ["lr", "momentum"]), suggestion("x", ["lr"])
        (" (did you mean 'lr'?)", '')
    """
    # The dashes of options, which all have, would make short ones look alike.
    spellings = {name.lower().removeprefix("--"): name for name in names}
    typed = str(got).lower()[:200].removeprefix("--")
    close = difflib.get_close_matches(typed, spellings, n=1)
    # Long words share few letters with their short forms: learning_rate and lr, decay and
    # weight_decay.
    close += [name for name in spellings if _initials(typed) == name or typed == _initials(name)]
    close += [name for name in spellings if typed in re.split("[-_]", name)]
    return f" (did you mean {spellings[close[0]]!r}?)" if close else ""


def _initials(name: str) -> str:
    """`lr` for `learning_rate`; empty for a single word."""
    words = re.findall("[a-z]+", name)
    return "".join(word[0] for word in words) if len(words) > 1 else ""


def parse_call(text: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a text such as `"krum(n_bad=2)"`, which is a `kind`."""
    matched = _FORM.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        raise _failure(kind, "have the form 'name(argument=value)'", repr(text))
    name, arguments = matched.groups()
    try:
        return name, _arguments(arguments or "")
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(
            f"`{name}` must have arguments of the form name=value, got ({_short(str(arguments))}); "
            "values are numbers, 'texts', true, false and none."
        ) from None


def _failure(name: str, requirement: str, got: object) -> ValueError:
    """As `holdfast.checks.failure`; names can be parsed without importing torch."""
    return ValueError(f"`{name}` must {requirement}, got {_short(str(got))}.")


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _fields(member: object) -> tuple[Field[Any], ...]:
    assert is_dataclass(member)
    return fields(member)


def _arguments(text: str) -> dict[str, Any]:
    """Parse `a=1, b=none` into numbers, strings, true, false and none."""
    call = ast.parse(f"f({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(text)
    values: dict[str, Any] = {}
    for word in call.keywords:
        if word.arg is None or word.arg in values:
            raise ValueError(text)
        is_word = isinstance(word.value, ast.Name) and word.value.id in _WORDS
        values[word.arg] = (
            _WORDS[ast.unparse(word.value)] if is_word else ast.literal_eval(word.value)
        )
    repr(values)  # fails for integers of more than 4300 digits, which no message could show
    return values
