"""Where data sets are searched, what counts as one, and what is said if it is missing."""

import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import MissingDataError, UnknownNameError
from holdfast.lab.data import data_sets, load, locate, verify
from holdfast.lab.data._locate import holds, places
from tests.lab.data.conftest import Register
from tests.lab.data.tiny import BIG, CONTENT, TINY, fill

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.parametrize("given", ["argument", "environment"])
def test_the_order_of_places(
    given: str,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    register: Register,
) -> None:
    mine, system = tmp_path / "mine", tmp_path / "system"
    monkeypatch.setenv(
        "HOLDFAST_DATA", str(mine if given == "environment" else tmp_path / "not searched")
    )
    data_dir = mine if given == "argument" else None
    fill(tmp_path / "not searched")
    register(replace(TINY, system=(system,)))
    order = [mine / "tiny", mine, cache, system]
    assert places(replace(TINY, system=(system,)), data_dir) == order
    for folder in order:
        fill(folder)
    for folder in order:
        assert locate("tiny", data_dir=data_dir) == folder
        for name in CONTENT:
            (folder / name).unlink()
    assert locate("tiny", data_dir=data_dir) is None


def test_an_empty_environment_gives_no_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", "")
    assert places(TINY, None) == [cache]


def test_a_tilde_means_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places(TINY, "~/sets")[0] == tmp_path / "sets" / "tiny"


def test_a_folder_without_one_of_the_files_does_not_count(cache: Path) -> None:
    for name in CONTENT:
        assert holds(TINY, fill(cache))
        (cache / name).unlink()
        assert not holds(TINY, cache), name


def test_files_of_the_same_names_but_of_another_set_do_not_count(cache: Path) -> None:
    fill(cache, t10k_labels=CONTENT["train-labels-idx1-ubyte"])
    assert locate("tiny") is None
    embedded = locate("fashion-mnist-slice")
    assert embedded is not None
    assert not any(holds(data_sets[name], embedded) for name in ("mnist", "fashion-mnist"))


def test_raw_and_gzipped_files_may_be_mixed_and_raw_ones_go_first(cache: Path) -> None:
    fill(cache, gzipped=True)
    (cache / f"{BIG}.gz").write_bytes(b"damage")
    assert [line.partition(" ")[0] for line in verify("tiny", cache)] == [f"{BIG}.gz"]
    (cache / BIG).write_bytes(CONTENT[BIG])
    assert verify("tiny", cache) == []
    assert len(load("tiny").train) == 100


# Verifying


def test_every_problem_is_one_line(cache: Path) -> None:
    fill(cache, gzipped=True, train_images=b"else")
    (cache / "train-labels-idx1-ubyte.gz").unlink()
    packed = cache / "t10k-images-idx3-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-4])
    first, second, third = verify("tiny", cache)
    assert first.startswith(f"{BIG}.gz has sha256:")
    assert first.endswith(f", expected {TINY.files[0].digest}")
    assert second == "train-labels-idx1-ubyte is missing"
    assert third.startswith("t10k-images-idx3-ubyte.gz cannot be read (Compressed file ended")


def test_verifying_by_name(tmp_path: Path) -> None:
    embedded = locate("fashion-mnist-slice")
    assert embedded is not None
    assert verify("fashion-mnist-slice", str(embedded)) == []
    copy = shutil.copytree(embedded, tmp_path / "copy")
    (copy / "t10k-labels-idx1-ubyte.gz").unlink()
    assert verify("fashion-mnist-slice", copy) == ["t10k-labels-idx1-ubyte is missing"]
    assert len(verify("mnist", embedded)) == 4


# Loading


def test_a_missing_data_set_is_reported_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load("mnist", data_dir=tmp_path / "x")
    cached = tmp_path / "cache" / "holdfast" / "data" / "mnist"
    assert str(caught.value) == (
        "`data_dir` must hold mnist (train-images-idx3-ubyte and 3 more files, each gzipped or "
        f"not), got none of it in {tmp_path / 'x' / 'mnist'}, {tmp_path / 'x'}, {cached}; "
        "to fetch it, run: holdfast data fetch mnist"
    )
    assert isinstance(caught.value, FileNotFoundError)


def test_loading_never_uses_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(MissingDataError):
        load("cifar-10")
    assert len(load("fashion-mnist-slice").train) == 6000


def test_a_wrong_number_of_images_is_refused(cache: Path, register: Register) -> None:
    fill(cache)
    register(replace(TINY, n_test=21))
    with pytest.raises(
        ValueError, match=rf"^`data_dir` must hold the 21 test images of tiny, got 20 in {cache}\.$"
    ):
        load("tiny")


def test_the_slice_is_never_taken_from_another_folder(tmp_path: Path) -> None:
    fill(tmp_path)
    assert (
        locate("fashion-mnist-slice", data_dir=tmp_path)
        == places(data_sets["fashion-mnist-slice"], tmp_path)[0]
    )
    assert load("fashion-mnist-slice", data_dir=tmp_path).shape == (1, 28, 28)


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    wrong: dict[Any, str] = {"fashion-mnst": "fashion-mnist", "MNIST": "mnist", 3: ""}
    known = ", ".join(sorted([*data_sets, "tiny"]))
    for name, nearest in wrong.items():
        with pytest.raises(UnknownNameError) as caught:
            load(name)
        hint = f" (did you mean {nearest!r}?)" if nearest else ""
        assert str(caught.value) == f"`name` must be one of {known}, got {name!r}{hint}."


@pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)
def test_the_system_copy_of_fashion_mnist_is_right_and_loads() -> None:
    assert locate("fashion-mnist") == DEBIAN
    assert verify("fashion-mnist", DEBIAN) == []
    data = load("fashion-mnist")
    assert (len(data.train), len(data.test), data.shape) == (60_000, 10_000, (1, 28, 28))
    shares = data.train.images.flatten().bincount(minlength=256) / data.train.images.numel()
    values = torch.arange(256) / 255
    mean = float(shares @ values)
    assert mean == pytest.approx(data.mean[0], abs=5e-5)
    assert float(shares @ (values - mean) ** 2) ** 0.5 == pytest.approx(data.deviation[0], abs=5e-5)


def test_the_table_is_in_order() -> None:
    assert list(data_sets) == ["fashion-mnist-slice", "fashion-mnist", "mnist", "cifar-10"]
    lengths = {"md5": 32, "sha1": 40, "sha256": 64}
    for name, described in data_sets.items():
        assert described.name == name
        assert len(described.mean) == len(described.deviation) == (3 if name == "cifar-10" else 1)
        assert len(described.classes) == len(set(described.classes)) == 10
        assert all(
            len(file.digest.split(":")[1]) == lengths[file.algorithm] for file in described.files
        )
        assert (
            described.is_bundled
            == (described.download_bytes == 0)
            == (name == "fashion-mnist-slice")
        )
        assert described.signature in {"", *(file.name for file in described.files)}
    digests = [file.digest for described in data_sets.values() for file in described.files]
    assert len(set(digests)) == len(digests) == 18
