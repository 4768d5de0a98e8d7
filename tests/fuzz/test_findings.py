"""What fuzzing and its review have found, one test for each."""

import gzip
import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.aggregators import rules
from holdfast.lab.config import Config, config_from_json, config_to_json
from holdfast.lab.data import _npm, read_idx
from holdfast.lab.data._cifar import read_batches
from holdfast.lab.data._store import SourceError
from holdfast.lab.records import load_checkpoint, save_checkpoint
from holdfast.lab.training import run, trained_model
from holdfast.robust_step import memories

SMALL = Config(model="tiny-cnn", n_rows=2, row_size=2, n_steps=3)


def test_a_message_repeats_the_beginning_of_a_long_value_only() -> None:
    with pytest.raises(ValueError, match=r"got x{1000}\.\.\.\.$"):
        rules.parse(f"radius-filter(reach='{'x' * 20_000}')")
    with pytest.raises(ValueError, match=r"^`rule` must have the form .{200,300}\.\.\.\.$"):
        rules.parse("(" * 3000)


@pytest.mark.parametrize("form", ["0x{}", "-0x{}", "(0x{}, 1)"])
def test_a_number_that_python_does_not_print_is_refused(form: str) -> None:
    number = form.format("f" * 5000)
    for registry, text in ((rules, f"krum(n_bad={number})"), (memories, f"row(units={number})")):
        with pytest.raises(ValueError, match="must have arguments of the form name=value"):
            registry.parse(text)


def test_a_direction_that_has_no_hash_is_refused() -> None:
    data = config_to_json(Config())
    data["threat"]["attack"] = {"name": "huddle", "direction": {}}
    with pytest.raises(ValueError, match="`direction` must be"):
        config_from_json(data)


def archive(name: str, content: bytes) -> tarfile.TarFile:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        made.addfile(info, io.BytesIO(content))
    return tarfile.open(fileobj=io.BytesIO(buffer.getvalue()))


def test_labels_that_are_nested_deeply_are_not_delivered() -> None:
    with archive("labels.json", b"[" * 100_000) as made, pytest.raises(SourceError, match="labels"):
        _npm._labels(made, "labels.json")


def test_a_file_of_a_package_that_is_far_too_large_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_npm, "_MOST_BYTES", 10)
    refused = pytest.raises(SourceError, match="has 12 bytes, expected at most 10")
    with archive("labels.json", b"[1, 2, 3, 4]") as made, refused:
        _npm._labels(made, "labels.json")


def test_a_batch_that_unpacks_to_more_than_ten_thousand_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(gzip.compress(bytes(3073 * 10_001), compresslevel=1))
    with pytest.raises(ValueError, match="hold at most 30730000 bytes"):
        read_batches([path])


def test_an_idx_file_that_promises_more_than_a_gigabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(b"\0\0\x08\x03" + struct.pack(">3I", 2**31, 28, 28) + bytes(100))
    with pytest.raises(ValueError, match="have a shape of at most 1073741824 bytes"):
        read_idx(path)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    run(SMALL, tmp_path / "run", stop=lambda: True)
    return tmp_path / "run"


def change(folder: Path, *place: Any, value: Any) -> None:
    """Replace one value of the checkpoint."""
    tree = load_checkpoint(folder / "checkpoint.pt")
    node = tree
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    save_checkpoint(folder / "checkpoint.pt", tree)


PLACES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "no step": (("step",), None),
    "a step beyond the end": (("step",), 99),
    "no bytes": (("n_bytes",), -1),
    "a shape as large as the memory": (("shape",), (1, 10**6, 10**6)),
    "no experiment": (("experiment",), 1),
    "no model": (("experiment", "model"), None),
    "another model": (("experiment", "model"), {}),
}


@pytest.mark.parametrize(("place", "value"), PLACES.values(), ids=PLACES)
def test_a_checkpoint_with_another_content_is_refused(
    stopped: Path, place: tuple[Any, ...], value: Any
) -> None:
    change(stopped, *place, value=value)
    for read in (trained_model, lambda folder: run(SMALL, folder)):
        with pytest.raises(ValueError, match="`folder` must hold a checkpoint"):
            read(stopped)


@pytest.mark.parametrize("buffer", [(1, 2), None, {}], ids=["a tuple", "nothing", "a mapping"])
def test_a_checkpoint_with_another_state_of_the_optimizer_is_refused(
    stopped: Path, buffer: Any
) -> None:
    place = ("experiment", "optimizer", "state", 0)
    change(stopped, *place, value={} if buffer is None else {"momentum_buffer": buffer})
    with pytest.raises(ValueError, match=r"fits its configuration.*optimizer has another state"):
        run(SMALL, stopped)


def test_a_checkpoint_with_other_settings_of_the_optimizer_is_refused(stopped: Path) -> None:
    change(stopped, "experiment", "optimizer", "param_groups", 0, "momentum", value=0.5)
    with pytest.raises(ValueError, match="optimizer has another state"):
        run(SMALL, stopped)
