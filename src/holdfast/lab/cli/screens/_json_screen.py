import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import typer

from holdfast.lab.cli.screens._screen import Screen
from holdfast.lab.config import Config
from holdfast.lab.data import Progress
from holdfast.lab.records import Record


@final
class JsonScreen(Screen):
    """Every entry as a line of JSON, as the record has it, and a last line about the end."""

    def close(self) -> None:
        return

    def fetching(self, progress: Progress) -> None:
        return

    def begin(self, config: Config, folder: Path) -> None:
        return

    def entry(self, entry: Mapping[str, Any]) -> None:
        typer.echo(json.dumps(entry))

    def end(self, record: Record, go_on: str) -> None:
        end = record.end or {"end": "stopped"}
        typer.echo(
            json.dumps(
                {
                    "end": end["end"],
                    "reason": end.get("reason"),
                    "n_steps": record.n_steps,
                    "accuracy": record.accuracy,
                    "bad_weight": record.bad_weight,
                    "hash": record.hash,
                    "folder": str(record.folder),
                }
            )
        )
