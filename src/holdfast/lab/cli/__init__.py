"""The command line."""

import os
import sys
from pathlib import Path

from holdfast.errors import DISTRIBUTION


def main() -> None:
    """Run the command `holdfast`."""
    if sys.stdout is None:  # closed by the calling process
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
    try:
        from holdfast.lab.cli._app import app

        app()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        sys.stderr.write(
            f"The command line has further requirements: pip install '{DISTRIBUTION}[lab]' "
            f"({error}).\n"
        )
        raise SystemExit(1) from None
    except KeyboardInterrupt:  # while the commands were loaded
        raise SystemExit(130) from None
