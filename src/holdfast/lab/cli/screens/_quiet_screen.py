from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import typer

from holdfast.lab.cli._summary import last_line
from holdfast.lab.cli.screens._screen import Screen
from holdfast.lab.config import Config
from holdfast.lab.data import Progress
from holdfast.lab.records import Record


@final
class QuietScreen(Screen):
    """The last line alone."""

    def close(self) -> None:
        return

    def fetching(self, progress: Progress) -> None:
        return

    def begin(self, config: Config, folder: Path) -> None:
        return

    def entry(self, entry: Mapping[str, Any]) -> None:
        return

    def end(self, record: Record, go_on: str) -> None:
        typer.echo(last_line(record, go_on))
