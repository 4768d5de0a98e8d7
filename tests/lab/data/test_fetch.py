"""Fetching from web servers: only right files get a final name, and failures say what happened."""

import gzip
import hashlib
import io
import multiprocessing
import os
import re
import resource
import tarfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import FetchError, UnknownNameError
from holdfast.lab.data import Progress, _fetch, fetch, load, locate, verify
from holdfast.lab.data._data_sets import Archive
from tests.lab.data.conftest import Register
from tests.lab.data.server import (
    Fault,
    Server,
    cut_after,
    dropped,
    hang_after,
    instead,
    serving,
    slow,
    status,
    unmeasured,
)
from tests.lab.data.tiny import BIG, CONTENT, GZIPPED, TINY, fill, is_right, names, tar

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
WHOLE = GZIPPED[f"{BIG}.gz"]


# The folder


def test_files_are_written_to_the_cache_uncompressed_and_load(server: Server, cache: Path) -> None:
    assert fetch("tiny") == cache
    assert is_right(cache)
    data = load("tiny")
    assert (len(data.train), len(data.test), data.shape) == (100, 20, (1, 40, 40))
    assert bytes(data.train.images.flatten().tolist()) == CONTENT[BIG][16:]
    assert server.sent == TINY.download_bytes


def test_a_given_folder_is_written_to_below_the_name(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "shared"))
    assert fetch("tiny", data_dir=tmp_path / "mine") == tmp_path / "mine" / "tiny"
    assert not (tmp_path / "shared").exists()
    assert fetch("tiny") == tmp_path / "shared" / "tiny"
    assert is_right(tmp_path / "mine" / "tiny")
    assert is_right(tmp_path / "shared" / "tiny")
    assert not cache.exists()


def test_a_folder_that_cannot_be_created_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FetchError) as caught:
        fetch("tiny", data_dir=tmp_path / "file")
    assert str(caught.value) == (
        "`data_dir` must be a folder that has room and can be written to, "
        f"got {tmp_path / 'file' / 'tiny'} (Not a directory)."
    )
    assert server.requests == []


def test_a_folder_with_the_name_of_a_file_is_reported(server: Server, cache: Path) -> None:
    (cache / BIG).mkdir(parents=True)
    with pytest.raises(FetchError, match=rf"got {cache} \(Is a directory\)\.$"):
        fetch("tiny")
    assert names(cache) == {BIG}


# Existing copies


def test_a_right_copy_is_fetched_again_only_by_force(server: Server, tmp_path: Path) -> None:
    for gzipped in (False, True):
        folder = fill(tmp_path / str(gzipped) / "tiny", gzipped=gzipped)
        assert fetch("tiny", data_dir=folder.parent) == folder
    assert server.requests == []
    assert fetch("tiny", data_dir=tmp_path / "False", force=True) == tmp_path / "False" / "tiny"
    assert server.requests == list(GZIPPED)


def test_a_forced_fetch_that_fails_keeps_the_copy(server: Server, cache: Path) -> None:
    fill(cache)
    server.files.clear()
    with pytest.raises(FetchError, match="404"):
        fetch("tiny", force=True)
    assert is_right(cache)


def test_only_the_damaged_file_of_a_copy_is_fetched_again(server: Server, tmp_path: Path) -> None:
    for gzipped in (False, True):
        for damaged in ("train_images", "t10k_labels"):
            folder = fill(tmp_path / f"{gzipped}" / "tiny", gzipped=gzipped, **{damaged: b"damage"})
            server.requests.clear()
            assert fetch("tiny", data_dir=folder.parent) == folder
            found = [name.startswith(damaged.replace("_", "-")) for name in server.requests]
            assert found == [True], (gzipped, damaged)
            assert verify("tiny", folder) == []


def test_a_damaged_copy_of_the_user_is_neither_changed_nor_used(
    server: Server, tmp_path: Path
) -> None:
    fill(tmp_path / "mine", train_images=b"damage")
    assert fetch("tiny", data_dir=tmp_path / "mine") == tmp_path / "mine" / "tiny"
    assert (tmp_path / "mine" / BIG).read_bytes() == b"damage"
    assert locate("tiny", data_dir=tmp_path / "mine") == tmp_path / "mine" / "tiny"


def test_a_system_folder_is_used_if_right_and_skipped_if_damaged(
    server: Server, register: Register, tmp_path: Path, cache: Path
) -> None:
    damaged, right = fill(tmp_path / "damaged", train_images=b"damage"), fill(tmp_path / "right")
    register(replace(TINY, mirrors=(server.url,), system=(damaged, right)))
    assert fetch("tiny") == right
    assert server.requests == []
    (right / BIG).write_bytes(b"damage")
    assert fetch("tiny") == cache
    assert is_right(cache)
    assert (damaged / BIG).read_bytes() == (right / BIG).read_bytes() == b"damage"


def test_a_damaged_copy_that_hides_a_right_one_is_repaired(
    server: Server, register: Register, tmp_path: Path, cache: Path
) -> None:
    fill(cache, train_images=b"damage")  # loading would find this one
    register(replace(TINY, mirrors=(server.url,), system=(fill(tmp_path / "system"),)))
    assert fetch("tiny") == cache
    assert is_right(cache)


def test_the_slice_is_bundled(tmp_path: Path) -> None:
    folder = fetch("fashion-mnist-slice", data_dir=tmp_path, force=True)
    assert folder == locate("fashion-mnist-slice")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_bundle_is_reported(register: Register, tmp_path: Path) -> None:
    system = (fill(tmp_path / "bundle", train_images=b"damage"),)
    register(replace(TINY, mirrors=(), system=system))
    with pytest.raises(FetchError, match=r"got a damaged copy; install holdfast again\.$"):
        fetch("tiny")


# Failures

FAULTS: dict[str, tuple[Fault, str]] = {
    "not found": (status(404), f"{BIG}.gz: HTTP Error 404: Not Found"),
    "busy": (status(503), f"{BIG}.gz: HTTP Error 503: Service Unavailable"),
    "no answer": (dropped, f"{BIG}.gz: Remote end closed connection without response"),
    "silent": (hang_after(0), f"{BIG}: timed out"),
    "silent in the middle": (hang_after(60_000), f"{BIG}: timed out"),
    "cut": (cut_after(60_000), f"{BIG}: Compressed file ended before"),
    "html": (instead(b"<html>Sign in</html>"), f"{BIG}: Not a gzipped file"),
    "short": (instead(WHOLE[:-9]), f"{BIG}: Compressed file ended before"),
    "long": (instead(WHOLE + b"more"), f"{BIG}: Not a gzipped file"),
    "flipped": (
        instead(WHOLE[:50_000] + bytes([WHOLE[50_000] ^ 1]) + WHOLE[50_001:]),
        f"{BIG}: CRC check failed",
    ),
    "empty": (instead(b""), f"{BIG} has sha256:e3b0c4"),
    "another content": (
        instead(gzip.compress(b"else")),
        f"{BIG} has sha256:{hashlib.sha256(b'else').hexdigest()}, expected {TINY.files[0].digest}",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_leaves_nothing(
    fault: str, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fetch, "TIMEOUT", 0.2)
    answer, reason = FAULTS[fault]
    server.faults[f"{BIG}.gz"] += [answer]
    with pytest.raises(FetchError) as caught:
        fetch("tiny")
    first, tried, by_hand = str(caught.value).splitlines()
    assert first == "`tiny` could not be fetched from any source:"
    assert tried.startswith(f"  {server.host}: {reason}")
    assert by_hand == (
        f"By hand: put {', '.join(CONTENT)} (each gzipped or not) into {cache}, "
        "or name a web folder that has them with --mirror URL."
    )
    assert len(server.requests) == 1
    assert names(cache) == set()
    fetch("tiny")
    assert is_right(cache)


def test_a_server_may_be_slow_and_need_not_say_the_length(server: Server, cache: Path) -> None:
    seen: list[Progress] = []
    server.faults[f"{BIG}.gz"] += [unmeasured]
    server.faults["t10k-images-idx3-ubyte.gz"] += [slow(0.01)]
    fetch("tiny", progress=seen.append)
    assert is_right(cache)
    big = [step for step in seen if step.file == f"{BIG}.gz"]
    assert ({step.total for step in big}, big[-1].done) == ({None}, len(WHOLE))


@pytest.mark.parametrize("host", ["127.0.0.1:9", "nowhere.invalid"])
def test_an_offline_machine_fails_at_once_and_says_what_to_do(
    host: str, register: Register
) -> None:
    register(replace(TINY, mirrors=(f"http://{host}/x/",), debian="dataset-tiny"))
    start = time.monotonic()
    with pytest.raises(FetchError) as caught:
        fetch("tiny")
    assert time.monotonic() - start < 10
    _, tried, by_hand = str(caught.value).splitlines()
    reason = "Connection refused" if host[0] == "1" else "."  # of the resolver, in its words
    assert re.match(rf"  {host}/x: {BIG}\.gz: \[Errno -?\d+\] {reason}", tried)
    assert by_hand.startswith("By hand: install the Debian package dataset-tiny, or put ")


# Several sources


def test_a_second_mirror_is_asked_only_for_what_is_missing(server: Server, cache: Path) -> None:
    with serving(dict(GZIPPED)) as other:
        other.files.pop("t10k-images-idx3-ubyte.gz")
        fetch("tiny", mirrors=[f"{other.url}/"])
        assert is_right(cache)
        assert other.requests == list(GZIPPED)[:3]
        assert server.requests == list(GZIPPED)[2:]


def test_mirrors_that_are_not_web_addresses_are_refused(cache: Path) -> None:
    message = r"^`mirrors` must be addresses that start with http:// or https://, got"
    wrong: list[Any] = ["ftp://a/b", "file:///etc", "/data", "", "http://", "http://a:b/", 3]
    for mirror in [*wrong, "http://[::1"]:
        with pytest.raises(ValueError, match=message):
            fetch("tiny", mirrors=[mirror])
    with pytest.raises(ValueError, match=r"must be a list of addresses, got 'http://a/'\.$"):
        fetch("tiny", mirrors="http://a/")
    assert not cache.exists()


def test_a_password_is_not_shown(server: Server) -> None:
    server.files.clear()
    mirror = server.url.replace("http://", "http://me:secret@") + "/x"
    with pytest.raises(FetchError) as caught:
        fetch("tiny", mirrors=[mirror])
    assert f"  {server.host}/x: " in str(caught.value)
    assert "secret" not in str(caught.value)


# Progress


def test_progress_counts_every_byte_of_every_file(server: Server) -> None:
    seen: list[Progress] = []
    fetch("tiny", progress=seen.append)
    assert {step.source for step in seen} == {server.host}
    for name, content in GZIPPED.items():
        done = [step.done for step in seen if step.file == name]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, len(content))
        assert {step.total for step in seen if step.file == name} == {len(content)}
    assert sum(step.file == f"{BIG}.gz" for step in seen) > 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_an_exception_in_progress_interrupts_and_leaves_nothing(
    error: type[BaseException], server: Server, cache: Path
) -> None:
    def interrupt(step: Progress) -> None:
        if step.done > 50_000:
            raise error

    with pytest.raises(error):
        fetch("tiny", progress=interrupt)
    assert names(cache) == set()
    fetch("tiny")
    assert is_right(cache)


# Processes of their own


def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """A fork, because it need not import torch; it only fetches."""
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads; the server has one
        process.start()
    return process


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fetch_and_note(notes: Path) -> None:
    """Creates a file for each source that the process sees."""
    fetch("tiny", progress=lambda step: (notes / f"{step.source} {os.getpid()}").touch())


def test_processes_wait_for_each_other_and_survive_one_that_is_killed(
    server: Server, tmp_path: Path, cache: Path
) -> None:
    server.faults[f"{BIG}.gz"] += [hang_after(60_000), slow(0.02)]
    notes = tmp_path / "notes"
    notes.mkdir()
    killed = start(fetch_and_note, notes)
    wait_until(lambda: server.sent >= 60_000)
    others = [start(fetch_and_note, notes) for _ in range(2)]
    wait_until(lambda: len(list(notes.glob("another process*"))) == 2)
    assert names(cache) == {f"{BIG}.part"}
    killed.kill()
    for process in (killed, *others):
        process.join(60)
    assert [process.exitcode for process in others] == [0, 0]
    assert is_right(cache)
    assert server.requests == [f"{BIG}.gz", *GZIPPED]  # the killed one, then one of the others


def fetch_with_little_room(folder: Path, note: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        fetch("tiny", data_dir=folder)
    except FetchError as error:
        note.write_text(str(error))


def test_a_full_disk_is_named_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    process = start(fetch_with_little_room, tmp_path, tmp_path / "note")
    process.join(60)
    assert (tmp_path / "note").read_text() == (
        "`data_dir` must be a folder that has room and can be written to, "
        f"got {tmp_path / 'tiny'} (File too large)."
    )
    assert names(tmp_path / "tiny") == set()
    assert len(server.requests) == 1


# One tar file instead of single files

MEMBERS = {f"batches/{name}": content for name, content in CONTENT.items()}
ARCHIVE = tar(MEMBERS)


@pytest.fixture
def archive(server: Server, register: Register) -> Server:
    """A mirror that offers one archive."""
    server.files = {"tiny.tar.gz": ARCHIVE}
    packed = Archive(name="tiny.tar.gz", folder="batches")
    register(replace(TINY, archive=packed, subfolder="batches", mirrors=(server.url,)))
    return server


def test_only_the_wanted_files_come_out_of_an_archive(archive: Server, tmp_path: Path) -> None:
    others = {"batches/readme.html": b"hello", f"other/{BIG}": b"no"}
    outside = {"../../escaped": b"out", "/tmp/holdfast-escaped": b"out"}
    archive.files["tiny.tar.gz"] = tar({**outside, **others, **MEMBERS})
    assert is_right(fetch("tiny", data_dir=tmp_path / "a"))
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert not Path("/tmp/holdfast-escaped").exists()


def linked() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as content:
        link = tarfile.TarInfo(f"batches/{BIG}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        content.addfile(link)
    return packed.getvalue()


BAD_ARCHIVES = {
    "cut": (ARCHIVE[:100_000], rf"{BIG}: "),
    "damaged": (
        ARCHIVE[:50_000] + bytes(100) + ARCHIVE[50_100:],
        rf"{BIG}: |{BIG} has sha256:\w+, expected sha256:\w+",
    ),
    "html": (b"<html>Sign in</html>", r"tiny\.tar\.gz: not a gzip file"),
    "empty file": (b"", r"tiny\.tar\.gz: "),
    "empty archive": (tar({}), rf"it does not hold batches/{BIG}, "),
    "another content": (tar({**MEMBERS, f"batches/{BIG}": b"else"}), rf"{BIG} has sha256:\w+, "),
    "one missing": (tar(dict(list(MEMBERS.items())[1:])), rf"it does not hold batches/{BIG}\n"),
    "a link": (linked(), rf"it does not hold batches/{BIG}, "),
}


@pytest.mark.parametrize("case", BAD_ARCHIVES)
def test_a_bad_archive_is_refused(case: str, archive: Server, cache: Path) -> None:
    archive.files["tiny.tar.gz"], reason = BAD_ARCHIVES[case]
    with pytest.raises(FetchError, match=rf"  {archive.host}: (?:{reason})"):
        fetch("tiny")
    assert BIG not in names(cache)
    assert all((cache / name).read_bytes() == CONTENT[name] for name in names(cache))


def test_files_may_be_in_a_subfolder(archive: Server, tmp_path: Path) -> None:
    fill(tmp_path / "tiny" / "batches")
    assert fetch("tiny", data_dir=tmp_path) == tmp_path / "tiny"
    assert archive.requests == []


# By name


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    for call in (fetch, locate, load, lambda name: verify(name, ".")):
        with pytest.raises(UnknownNameError, match=r"\(did you mean 'cifar-10'\?\)\.$"):
            call("cifar10")


@pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)
def test_the_real_fashion_mnist_is_fetched_from_a_mirror(tmp_path: Path) -> None:
    with serving({path.name: path.read_bytes() for path in DEBIAN.glob("*.gz")}) as mirror:
        assert fetch("fashion-mnist") == DEBIAN
        folder = fetch("fashion-mnist", data_dir=tmp_path, mirrors=[mirror.url], force=True)
        assert folder == tmp_path / "fashion-mnist"
        assert len(mirror.requests) == 4
    assert verify("fashion-mnist", folder) == []
    assert locate("fashion-mnist", data_dir=tmp_path) == folder
