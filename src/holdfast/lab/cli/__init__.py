"""The command line."""

import os
import sys
from pathlib import Path


def main() -> None:
    """What the command `holdfast` runs."""
    if sys.stdout is None:  # closed by whoever started it
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
    try:
        from holdfast.lab.cli._app import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        sys.stderr.write(
            f"The command line needs more than the core: pip install 'holdfast[lab]' ({error}).\n"
        )
        raise SystemExit(1) from None
    app()
