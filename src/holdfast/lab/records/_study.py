"""Studies: which runs and measurements an experiment consists of, and how each is labeled."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, final

from holdfast.checks import failure
from holdfast.errors import NewerRecordError
from holdfast.lab.records._documents import build, check_document, read_json
from holdfast.lab.records._files import write_atomically

STUDY_FORMAT: Final = "holdfast study"
STUDY_VERSION: Final = 1
STUDY_SUFFIX: Final = ".study.json"
"""End of the file names of studies."""

Labels = Mapping[str, Any]
"""Texts, numbers or None that place a run, a measurement or a figure of the paper in its study."""


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment as it was run.

    Args:
        name: unique name, such as `table2-paper-quick`.
        recipe: name of the recipe, which decides how the results are drawn.
        variant: variant of the recipe; may be empty, like `size`, `note` and `command`.
        size: size of the recipe.
        title: heading in a report.
        about: the setting, in a sentence or two.
        note: what a reader of the results must know.
        command: command line that runs it.
        place: position in a report; studies with equal places are sorted by name.
        runs: labels of each run by its hash, in the order in which lines and columns are shown.
        measurements: labels of each measurement by its hash.
        paper: labels and values of the paper's figures.
    """

    name: str
    recipe: str
    variant: str = ""
    size: str = ""
    title: str
    about: str
    note: str = ""
    command: tuple[str, ...] = ()
    place: float = 0.0
    runs: Mapping[str, Labels] = field(default_factory=dict)
    measurements: Mapping[str, Labels] = field(default_factory=dict)
    paper: tuple[Labels, ...] = ()

    @property
    def references(self) -> frozenset[str]:
        """The hashes of all runs and measurements."""
        return frozenset(self.runs) | frozenset(self.measurements)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"format": STUDY_FORMAT, "version": STUDY_VERSION} | asdict(self)

    @staticmethod
    def from_json(data: object) -> "Study":
        """Return the study that :meth:`to_json` described.

        Raises:
            NewerRecordError: if a later release wrote it.
            ValueError: if it is damaged.
        """
        content = dict(check_document(data, "study", STUDY_FORMAT, STUDY_VERSION))
        del content["format"], content["version"]
        missing = [entry.name for entry in fields(Study) if entry.name not in content]
        if missing:  # defaults are for authors; a complete file has all fields
            raise failure("study", "have all its fields", f"no {missing[0]!r}")
        study = build(Study, content, "study")
        assert isinstance(study, Study)
        for labels in (*study.runs.values(), *study.measurements.values(), *study.paper):
            build(dict[str, str | float | None], labels, "labels")
        return study


def write_study(folder: str | os.PathLike[str], study: Study) -> Path:
    """Write the study into the folder, in place of one with the same name; returns its path."""
    path = Path(folder) / f"{study.name}{STUDY_SUFFIX}"
    text = json.dumps(study.to_json(), indent=1) + "\n"
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda new: new.write_text(text))
    return path


def keep_study(folder: str | os.PathLike[str], study: Study) -> None:
    """Write the study into the folder, unless one with the same name and more runs is there."""
    try:
        if read_study(Path(folder) / f"{study.name}{STUDY_SUFFIX}").references > study.references:
            return
    except NewerRecordError:
        raise
    except (FileNotFoundError, ValueError):
        pass  # there is none, or it is damaged
    write_study(folder, study)


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a study.

    Raises:
        NewerRecordError: if a later release wrote it.
        ValueError: if it is damaged.
    """
    return Study.from_json(read_json(path, "study"))
