"""A study: which runs and measurements a table or figure is made of, and how they are shown."""

import json
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Union, final, get_args, get_origin, get_type_hints

from holdfast.checks import failure
from holdfast.errors import NewerRecordError
from holdfast.lab.records._documents import LARGEST, check_document, read_json, short
from holdfast.lab.records._files import write_atomically
from holdfast.lab.records.views import (
    AccuracyTable,
    Curves,
    Measured,
    Pictures,
    Points,
    RowWeights,
    Scatter,
    TimeSplit,
    ValueTable,
    View,
)

STUDY_FORMAT: Final = "holdfast study"
STUDY_VERSION: Final = 1
STUDY_SUFFIX: Final = ".study.json"

VIEWS: dict[str, type[View]] = {
    view.kind: view
    for view in (
        AccuracyTable,
        Curves,
        Points,
        Measured,
        ValueTable,
        Scatter,
        Pictures,
        RowWeights,
        TimeSplit,
    )
}


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """One of the paper's tables or figures, as it was run.

    Args:
        name: unlike any other, such as `table2-paper-quick`.
        title: for people.
        about: the setting, in a sentence or two.
        command: what runs it.
        views: what there is to see.
        place: among the studies of a report; those of one place go by their names.
    """

    name: str
    title: str
    about: str
    command: tuple[str, ...]
    views: tuple[View, ...]
    place: float = 0.0

    @property
    def references(self) -> frozenset[str]:
        """The hashes of all runs and measurements that the views refer to."""
        return frozenset(_references(self.views))

    def to_json(self) -> dict[str, Any]:
        """A mapping of plain values."""
        head = {"format": STUDY_FORMAT, "version": STUDY_VERSION}
        own = {
            entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "views"
        }
        return head | own | {"views": [{"kind": view.kind, **asdict(view)} for view in self.views]}

    @staticmethod
    def from_json(data: object) -> "Study":
        """The study that :meth:`to_json` described.

        Raises:
            NewerRecordError: if a later release wrote it.
            ValueError: if it is damaged.
        """
        data = check_document(data, "study", STUDY_FORMAT, STUDY_VERSION)
        views = data.get("views")
        if not isinstance(views, list):
            raise failure("views", "be a list", short(views))
        own = {
            key: value for key, value in data.items() if key not in ("format", "version", "views")
        }
        head = _build(Study, own | {"views": []}, "study")
        assert isinstance(head, Study)
        return replace(head, views=tuple(map(_view, views)))


def write_study(folder: str | os.PathLike[str], study: Study) -> Path:
    """Put the study into the folder, in place of what was there of the same name; returns its path."""
    path = Path(folder) / f"{study.name}{STUDY_SUFFIX}"
    text = json.dumps(study.to_json(), indent=1) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda new: new.write_text(text))
    return path


def keep_study(folder: str | os.PathLike[str], study: Study) -> None:
    """Put the study into the folder, unless one of the same name with more runs is there: a report must not lose them."""
    try:
        if read_study(Path(folder) / f"{study.name}{STUDY_SUFFIX}").references > study.references:
            return
    except NewerRecordError:
        raise
    except (FileNotFoundError, ValueError):
        pass  # there is none, or it is damaged
    write_study(folder, study)


def read_study(path: str | os.PathLike[str]) -> Study:
    """The study in a file.

    Raises:
        NewerRecordError: if a later release wrote it.
        ValueError: if it is damaged.
    """
    return Study.from_json(read_json(path, "study"))


def _view(data: object) -> View:
    if (
        not isinstance(data, Mapping)
        or not isinstance(data.get("kind"), str)
        or data["kind"] not in VIEWS
    ):
        raise failure("views", f"be of the kinds {', '.join(VIEWS)}", short(data))
    view = _build(
        VIEWS[data["kind"]], {key: value for key, value in data.items() if key != "kind"}, "view"
    )
    assert isinstance(view, View)
    return view


def _build(kind: Any, data: object, name: str) -> object:
    """The value of the annotated type `kind` that plain values describe; anything else is refused by the field's name."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _build_fields(kind, data, name)
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise failure(name, "be a list", short(data))
        return tuple(_build(arguments[0], value, name) for value in data)
    if origin is Literal:
        if data not in arguments:
            raise failure(name, f"be one of {', '.join(arguments)}", short(data))
        return data
    if origin in (Union, types.UnionType):
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return None if data is None else _build(inner, data, name)
    if (
        kind is float
        and isinstance(data, (int, float))
        and not isinstance(data, bool)
        and abs(data) <= LARGEST
    ):
        return float(data)
    if kind is str and isinstance(data, str):
        return data
    raise failure(name, f"be a {kind.__name__}", short(data))


def _build_fields(kind: type, data: object, name: str) -> object:
    hints = get_type_hints(kind)
    known = [entry.name for entry in fields(kind)]
    if not isinstance(data, Mapping) or not set(data) <= set(known):
        raise failure(name, f"have {', '.join(known)} alone", short(data))
    try:
        return kind(**{key: _build(hints[key], value, key) for key, value in data.items()})
    except TypeError as error:
        raise failure(name, "have all that it needs", error) from error


def _references(node: object) -> Iterator[str]:
    """What stands under `runs`, `run` or `measurement`, at any depth."""
    if isinstance(node, tuple):
        for value in node:
            yield from _references(value)
    elif is_dataclass(node):
        for entry in fields(node):
            value = getattr(node, entry.name)
            yield from (
                _texts(value)
                if entry.name in ("runs", "run", "measurement")
                else _references(value)
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str) and value:  # a cell that holds a text refers to nothing
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _texts(part)
