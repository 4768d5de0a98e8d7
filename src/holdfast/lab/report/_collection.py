"""What was found on disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from holdfast.lab.records import MeasurementRecord, Study, Summary
from holdfast.lab.report._words import overview


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Collection:
    """All that a report is made of.

    Args:
        runs: by the hash of their configuration.
        measurements: by the hash of their configuration.
        studies: in the order of their places, then of their names, which are unlike each other.
        problems: one sentence for each thing that could not be read, or not be believed.
        unread: the files and folders of which something could not be read, by their real paths.
    """

    runs: Mapping[str, Summary]
    measurements: Mapping[str, MeasurementRecord]
    studies: tuple[Study, ...]
    problems: tuple[str, ...] = ()
    unread: frozenset[Path] = frozenset()

    @property
    def overview(self) -> str:
        """How much there is, in a sentence."""
        return overview(len(self.studies), len(self.runs), len(self.measurements))
