from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Progress:
    """How far the download of one file has come.

    Attributes:
        file: its name at the source.
        done: bytes that are on disk, those of an earlier, interrupted download among them.
        total: bytes in all, or None if the source does not say.
        source: whence, for people: a mirror's address or an npm package.
    """

    file: str
    done: int
    total: int | None
    source: str
