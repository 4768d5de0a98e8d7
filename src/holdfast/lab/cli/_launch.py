"""Whether torchrun has started this process; nothing here loads torch."""

import os


def is_launched() -> bool:
    """Whether torchrun has started this process, as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_follower() -> bool:
    """Whether this is a rank other than the first, which alone talks to the user."""
    return is_launched() and os.environ.get("RANK", "0") != "0"


def check_not_launched(command: str) -> None:
    """Refuse a command that cannot share its work among ranks."""
    if is_launched():
        raise ValueError(
            f"`holdfast {command}` must be started without torchrun; only train and resume use it."
        )
