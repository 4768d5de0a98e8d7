"""Fetching, against a server that misbehaves: what is under a final name is right, and every failure says what happened."""

import gzip
import hashlib
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import FetchError, UnknownNameError
from holdfast.lab.data import Progress, fetch, locate, verify
from holdfast.lab.data._fetch import fetch_described
from holdfast.lab.data._load import load_described
from holdfast.lab.data._locate import find_folder, problems
from tests.lab.data.server import (
    Fault,
    Server,
    cut_after,
    dropped,
    hang,
    hang_after,
    instead,
    serving,
    shifted,
    slow,
    status,
    unmeasured,
    whole,
)
from tests.lab.data.tiny import BIG, CONTENT, GZIPPED, IMPATIENT, TINY, at, fill, is_right, names

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
PART = f"{BIG}.gz.part"
SIZE = len(GZIPPED[f"{BIG}.gz"])


def get(server: Server, folder: Path | None = None, **options: Any) -> Path:
    return fetch_described(at(server.url), data_dir=folder, patience=IMPATIENT, **options)


# Where to


def test_what_is_fetched_lies_in_the_cache_raw_and_loads(server: Server, cache: Path) -> None:
    assert get(server) == cache
    assert is_right(cache)
    data = load_described(TINY)
    assert (len(data.train), len(data.test), data.shape) == (100, 20, (1, 40, 40))
    assert bytes(data.train.images.flatten().tolist()) == CONTENT[BIG][16:]
    assert server.sent == TINY.download_bytes


def test_a_given_folder_is_written_to_below_the_name(
    server: Server, tmp_path: Path, cache: Path
) -> None:
    assert get(server, tmp_path / "mine") == tmp_path / "mine" / "tiny"
    assert is_right(tmp_path / "mine" / "tiny")
    assert not cache.exists()


def test_the_environment_gives_a_folder(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "shared"))
    assert get(server) == tmp_path / "shared" / "tiny"
    assert is_right(tmp_path / "shared" / "tiny")


# What is here already


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_right_copy_is_not_fetched_again(gzipped: bool, server: Server, cache: Path) -> None:
    fill(cache, gzipped=gzipped)
    assert get(server) == cache
    assert server.requests == []


def test_force_fetches_a_right_copy_again(server: Server, cache: Path) -> None:
    fill(cache)
    assert get(server, force=True) == cache
    assert len(server.requests) == 4


def test_a_forced_fetch_that_fails_leaves_the_copy_as_it_was(server: Server, cache: Path) -> None:
    fill(cache)
    server.files.clear()
    with pytest.raises(FetchError, match="404 Not Found"):
        get(server, force=True)
    assert is_right(cache)


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("damaged", ["train_images", "t10k_labels"])
def test_only_the_damaged_file_of_a_copy_is_fetched_again(
    gzipped: bool, damaged: str, server: Server, cache: Path
) -> None:
    fill(cache, gzipped=gzipped, **{damaged: b"damage"})
    assert get(server) == cache
    assert [name.startswith(damaged.replace("_", "-")) for name, _ in server.requests] == [True]
    assert problems(TINY, cache) == []


def test_a_damaged_copy_of_the_users_own_is_not_touched_and_no_longer_found(
    server: Server, tmp_path: Path
) -> None:
    fill(tmp_path / "mine", train_images=b"damage")
    assert get(server, tmp_path / "mine") == tmp_path / "mine" / "tiny"
    assert (tmp_path / "mine" / BIG).read_bytes() == b"damage"
    assert find_folder(TINY, tmp_path / "mine") == tmp_path / "mine" / "tiny"


def test_the_systems_copy_is_used_if_right_and_passed_over_if_damaged(
    server: Server, tmp_path: Path, cache: Path
) -> None:
    system = fill(tmp_path / "system")
    description = at(server.url, system=(system,))
    assert fetch_described(description, patience=IMPATIENT) == system
    assert server.requests == []
    (system / BIG).write_bytes(b"damage")
    assert fetch_described(description, patience=IMPATIENT) == cache
    assert is_right(cache)
    assert (system / BIG).read_bytes() == b"damage"


def test_of_two_system_folders_the_damaged_one_is_passed_over(tmp_path: Path) -> None:
    damaged, right = fill(tmp_path / "damaged", train_images=b"damage"), fill(tmp_path / "right")
    assert fetch_described(replace(TINY, system=(damaged, right)), patience=IMPATIENT) == right


def test_a_damaged_copy_is_mended_although_the_system_has_a_right_one(
    server: Server, tmp_path: Path, cache: Path
) -> None:
    fill(cache, train_images=b"damage")  # which is what loading would find
    description = at(server.url, system=(fill(tmp_path / "system"),))
    assert fetch_described(description, patience=IMPATIENT) == cache
    assert is_right(cache)


def test_the_slice_comes_with_the_library(tmp_path: Path) -> None:
    folder = fetch("fashion-mnist-slice", data_dir=tmp_path, force=True)
    assert folder == locate("fashion-mnist-slice")
    assert list(tmp_path.iterdir()) == []


# A server that misbehaves, and comes round

FAULTS: dict[str, tuple[list[Fault], list[int]]] = {
    "503 twice": ([status(503), status(503)], [0, 0, 0]),
    "429": ([status(429)], [0, 0]),
    "dropped": ([dropped], [0, 0]),
    "silent": ([hang], [0, 0]),
    "cut, then continued": ([cut_after(60_000)], [0, 60_000]),
    "cut twice, then continued": ([cut_after(60_000), cut_after(50_000)], [0, 60_000, 110_000]),
    "silent in the middle": ([hang_after(60_000)], [0, 60_000]),
    "cut, then no ranges": ([cut_after(60_000), whole], [0, 60_000]),
    "cut, then another range": ([cut_after(60_000), shifted], [0, 60_000, 0]),
    "no length": ([unmeasured], [0]),
    "slow": ([slow(0.005)], [0]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault_is_retried_from_where_it_stopped(
    fault: str, server: Server, cache: Path
) -> None:
    faults, starts = FAULTS[fault]
    server.faults[f"{BIG}.gz"] += faults
    get(server)
    assert is_right(cache)
    assert server.starts(f"{BIG}.gz") == starts


@pytest.mark.parametrize(
    ("fault", "n_requests", "reason"),
    [
        (status(404), 1, f"{BIG}.gz: 404 Not Found"),
        (status(403), 1, f"{BIG}.gz: 403 Forbidden"),
        (status(503), 3, f"{BIG}.gz: 503 Service Unavailable"),
        (
            dropped,
            3,
            f"{BIG}.gz: the connection was cut (Remote end closed connection without response)",
        ),
        (hang, 3, f"{BIG}.gz: no byte for 0.4 s"),
        (cut_after(0), 3, f"{BIG}.gz: the connection was cut after 0 of {SIZE} bytes"),
    ],
)
def test_a_lasting_fault_is_named(
    fault: Fault, n_requests: int, reason: str, server: Server, cache: Path
) -> None:
    server.faults[f"{BIG}.gz"] += [fault] * 9
    start = time.monotonic()
    with pytest.raises(FetchError) as caught:
        get(server)
    assert time.monotonic() - start < 5  # three times the patience is 1.2 s
    host = server.url.removeprefix("http://")
    first, tried, by_hand = str(caught.value).splitlines()
    assert first == "`tiny` could not be fetched, because no source delivered it:"
    assert tried == f"  {host}: {reason}"
    assert by_hand == (
        f"By hand: put {', '.join(CONTENT)} (each gzipped or not) into {cache}, or name a web folder that has them with --mirror URL."
    )
    assert len(server.requests) == n_requests
    assert not names(cache) & set(CONTENT)


# Wrong bytes


def test_wrong_bytes_are_refused_and_named_with_both_digests(server: Server, cache: Path) -> None:
    server.faults[f"{BIG}.gz"] += [instead(gzip.compress(b"something else"))]
    with pytest.raises(FetchError) as caught:
        get(server)
    found, wanted = (
        hashlib.sha256(content).hexdigest() for content in (b"something else", CONTENT[BIG])
    )
    assert f"{BIG} has sha256:{found}, expected sha256:{wanted}" in str(caught.value)
    assert names(cache) == set()


WHOLE = GZIPPED[f"{BIG}.gz"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>Sign in</html>", r"\.gz is damaged \(Not a gzipped file"),
        (WHOLE[:-9], r"\.gz is damaged \(Compressed file ended before"),
        (WHOLE + b"more", r"\.gz is damaged \(Not a gzipped file"),
        (
            WHOLE[:50_000] + bytes([WHOLE[50_000] ^ 1]) + WHOLE[50_001:],
            r"\.gz is damaged \(CRC check failed",
        ),
        (b"", r" has sha256:e3b0c4.*, expected sha256:"),
    ],
    ids=["html", "short", "long", "flipped", "empty"],
)
def test_a_corrupt_gzip_file_is_refused(
    content: bytes, reason: str, server: Server, cache: Path
) -> None:
    server.faults[f"{BIG}.gz"] += [instead(content)]
    with pytest.raises(FetchError, match=f"{BIG}{reason}"):
        get(server)
    assert names(cache) == set()


def test_a_beginning_of_another_file_is_thrown_away_once(server: Server, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / PART).write_bytes(b"\x1f\x8b" + bytes(70_000))
    get(server)
    assert is_right(cache)
    assert server.starts(f"{BIG}.gz") == [70_002, 0]


def test_wrong_bytes_after_a_beginning_are_asked_for_no_more_than_twice(
    server: Server, cache: Path
) -> None:
    cache.mkdir(parents=True)
    (cache / PART).write_bytes(GZIPPED[f"{BIG}.gz"][:1000])
    server.files[f"{BIG}.gz"] = bytes(SIZE)
    with pytest.raises(FetchError, match="is damaged"):
        get(server)
    assert server.starts(f"{BIG}.gz") == [1000, 0]
    assert names(cache) == set()


@pytest.mark.parametrize(
    ("length", "starts"), [(SIZE, [SIZE]), (SIZE + 5, [SIZE + 5, 0])], ids=["complete", "too long"]
)
def test_a_part_that_leaves_nothing_to_send_is_settled(
    length: int, starts: list[int], server: Server, cache: Path
) -> None:
    cache.mkdir(parents=True)
    (cache / PART).write_bytes((GZIPPED[f"{BIG}.gz"] + b"extra")[:length])
    get(server)
    assert is_right(cache)
    assert server.starts(f"{BIG}.gz") == starts


# Several sources


def test_a_second_mirror_is_asked_only_for_what_the_first_did_not_deliver(
    server: Server, cache: Path
) -> None:
    with serving(dict(GZIPPED)) as other:
        server.files.pop("t10k-images-idx3-ubyte.gz")
        fetch_described(at(other.url), mirrors=[f"{server.url}/"], patience=IMPATIENT)
        assert is_right(cache)
        assert [name for name, _ in server.requests] == [f"{name}.gz" for name in list(CONTENT)[:3]]
        assert [name for name, _ in other.requests] == [f"{name}.gz" for name in list(CONTENT)[2:]]


@pytest.mark.parametrize(
    "mirror", ["ftp://a/b", "file:///etc", "/data", "", "http://", "http://a:b/", "http://[::1", 3]
)
def test_a_mirror_that_is_no_web_address_is_refused(mirror: Any, cache: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^`mirrors` must be addresses that start with http:// or https://, got"
    ):
        fetch_described(TINY, mirrors=[mirror])
    assert not cache.exists()


def test_a_single_mirror_must_stand_in_a_list() -> None:
    with pytest.raises(
        ValueError, match=r"^`mirrors` must be a list of addresses, got 'http://a/'\.$"
    ):
        fetch_described(TINY, mirrors="http://a/")


@pytest.mark.parametrize("host", ["127.0.0.1:9", "nowhere.invalid"])
def test_offline_fails_at_once_and_says_so(
    host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    description = replace(at(f"http://{host}/x/"), debian="dataset-tiny")
    start = time.monotonic()
    with pytest.raises(FetchError) as caught:
        fetch_described(description)  # with the patience that users have
    assert time.monotonic() - start < 10
    reason = "Connection refused" if host[0] == "1" else "its name cannot be resolved"
    assert str(caught.value).startswith(
        "`tiny` could not be fetched, because no server could be reached; this machine seems to be offline:\n"
        f"  {host}/x: {BIG}.gz: {reason}\nBy hand: install the Debian package dataset-tiny, or put "
    )


# Progress


def test_progress_counts_every_byte_of_every_file(server: Server) -> None:
    seen: list[Progress] = []
    get(server, progress=seen.append)
    assert {step.source for step in seen} == {server.url.removeprefix("http://")}
    for name, content in GZIPPED.items():
        done = [step.done for step in seen if step.file == name]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, len(content))
        assert {step.total for step in seen if step.file == name} == {len(content)}
    assert sum(step.file == f"{BIG}.gz" for step in seen) > 3


def test_progress_of_a_resumed_file_starts_where_it_stopped(server: Server, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / PART).write_bytes(GZIPPED[f"{BIG}.gz"][:70_000])
    seen: list[Progress] = []
    get(server, progress=seen.append)
    big = [step for step in seen if step.file == f"{BIG}.gz"]
    assert (big[0].done, big[-1].done, big[0].total) == (70_000, SIZE, SIZE)
    assert server.sent == TINY.download_bytes - 70_000


def test_progress_may_interrupt_and_the_next_call_goes_on(server: Server, cache: Path) -> None:
    def interrupt(step: Progress) -> None:
        if step.done > 50_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(server, progress=interrupt)
    kept = (cache / PART).stat().st_size
    assert 50_000 < kept < SIZE
    get(server)
    assert is_right(cache)
    assert server.starts(f"{BIG}.gz") == [0, kept]


# Two at once


def test_of_two_fetches_at_once_the_second_waits_and_fetches_nothing(
    server: Server, cache: Path
) -> None:
    server.faults[f"{BIG}.gz"] += [slow(0.03)]
    seen: list[Progress] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            get(server, progress=seen.append)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert is_right(cache)
    assert len(server.requests) == 4
    assert [step for step in seen if "another process" in step.source] == [
        Progress("tiny", 0, None, "another process, which is waited for")
    ]


# The folder


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "tiny"
    with pytest.raises(FetchError) as caught:
        get(server, tmp_path / "file")
    assert (
        str(caught.value)
        == f"`data_dir` must be a folder that has room and can be written to, got {folder} (Not a directory)."
    )
    assert server.requests == []


def test_a_folder_in_the_place_of_a_file_is_named(server: Server, cache: Path) -> None:
    (cache / BIG).mkdir(parents=True)
    with pytest.raises(FetchError, match=rf"got {cache} \(Is a directory\)\.$"):
        get(server)
    assert names(cache) == {BIG, PART}


# By name


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    for call in (fetch, locate, lambda name: verify(name, ".")):
        with pytest.raises(
            UnknownNameError,
            match=r"`name` must be one of fashion-mnist-slice, .* \(did you mean 'cifar-10'\?\)\.$",
        ):
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
