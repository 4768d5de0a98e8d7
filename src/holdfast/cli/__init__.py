"""The command line."""

import sys


def main() -> None:
    """What the command `holdfast` runs."""
    try:
        from holdfast.cli._app import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        sys.stderr.write(f"The command line needs more than the core: pip install 'holdfast[lab]' ({error}).\n")
        raise SystemExit(1) from None
    app()
