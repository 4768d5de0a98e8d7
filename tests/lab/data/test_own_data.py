"""Data sets of the user's, in four `.npy` files."""

import contextlib
import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from holdfast.errors import MissingDataError
from holdfast.lab.config import Config, config_from_json, config_to_json, hash_of
from holdfast.lab.data import load_own_data, own_data
from holdfast.lab.data._npy import DTYPES, parse_npy
from holdfast.lab.training import run, trained_model

Values = Any
CODES = [code for code in DTYPES if code not in ("<u2", "<u4", "<u8")]
"""Types that torch and NumPy exchange."""


def table(folder: Path) -> Path:
    """150 rows of 6 numbers, in three classes that are easy to tell apart."""
    random = np.random.default_rng(0)
    centers = 3 * random.normal(size=(3, 6))
    folder.mkdir(exist_ok=True)
    for split, n in (("train", 120), ("test", 30)):
        labels = np.arange(n) % 3
        values = centers[labels] + random.normal(size=(n, 6)) * [1, 1, 100, 1, 1, 1]
        values[:, 5] = 0.1
        np.save(folder / f"x_{split}.npy", values)
        np.save(folder / f"y_{split}.npy", labels)
    return folder


def images(folder: Path, shape: tuple[int, ...]) -> Path:
    """Bytes of this shape."""
    random = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for split, n in (("train", 40), ("test", 10)):
        np.save(folder / f"x_{split}.npy", random.integers(0, 256, (n, *shape), dtype=np.uint8))
        np.save(folder / f"y_{split}.npy", (np.arange(n) % 2).astype(np.uint8))
    return folder


@given(
    values=st.sampled_from(CODES).flatmap(
        lambda code: arrays.arrays(
            np.dtype(code), arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
        )
    ),
    is_fortran=st.booleans(),
)
def test_arrays_are_read_as_numpy_reads_them(values: Values, is_fortran: bool) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.asfortranarray(values) if is_fortran else values)
    read = parse_npy(bytearray(buffer.getvalue()), Path("x.npy")).numpy()
    assert (read.dtype, read.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(read, values)


@given(st.binary(max_size=300), st.integers(0, 200), st.booleans())
def test_damaged_files_are_refused_and_nothing_else_happens(
    noise: bytes, cut: int, keeps_magic: bool
) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6.0).reshape(2, 3))
    whole = buffer.getvalue()
    content = (whole[:8] if keeps_magic else b"") + noise + whole[cut + 8 :]
    if content == whole:
        return
    with contextlib.suppress(ValueError):  # noise may leave a whole file of other numbers
        assert parse_npy(bytearray(content), Path("x.npy")).numel() * 8 <= len(content)


def test_a_table_is_standardized_and_learned_and_its_run_resumes(tmp_path: Path) -> None:
    known = own_data(table(tmp_path / "table"))
    assert (known.n_train, known.n_test, known.shape, known.n_classes) == (120, 30, (6,), 3)
    data = load_own_data(known)
    normal = data.normalize(data.train.scaled())
    torch.testing.assert_close(normal.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    # The last column is constant, and stays 0.
    torch.testing.assert_close(normal.std(0, correction=0), torch.tensor([1.0] * 5 + [0.0]))
    config = Config(data="table", own_data=known, model="mlp", n_rows=6, row_size=4, n_steps=30)
    assert config_from_json(config_to_json(config)) == config
    part = run(replace(config, n_steps=10), tmp_path / "part")
    whole = run(config, tmp_path / "whole")
    assert whole.accuracy is not None
    assert whole.accuracy > 0.9
    assert part.entries != whole.entries
    assert run(config, tmp_path / "part").without_times() == whole.without_times()
    assert trained_model(tmp_path / "part")(normal[:5]).shape == (5, 3)


@pytest.mark.parametrize("shape", [(9, 8), (3, 9, 8), (2, 3, 4, 5)])
def test_bytes_are_scaled_and_normalized_per_channel(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    data = load_own_data(own_data(images(tmp_path / "images", shape)))
    assert data.shape == ((1, *shape) if len(shape) == 2 else shape)
    pixels, labels = data.train.batch(torch.arange(40))
    assert 0 <= float(pixels.min()) < float(pixels.max()) <= 1
    normal = data.normalize(pixels).transpose(0, 1).flatten(1)
    torch.testing.assert_close(normal.mean(1), torch.zeros(len(normal)), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std(1, correction=0), torch.ones(len(normal)))
    assert labels.tolist() == [0, 1] * 20


def test_the_hash_of_a_run_changes_with_its_data(tmp_path: Path) -> None:
    known = own_data(table(tmp_path / "table"))
    config = Config(data="table", own_data=known, model="mlp", n_rows=6, row_size=4)
    np.save(tmp_path / "table" / "y_test.npy", np.arange(30)[::-1] % 3)
    changed = replace(config, own_data=own_data(tmp_path / "table"))
    assert hash_of(changed) != hash_of(config)
    with pytest.raises(ValueError, match=r"`data` must hold the data of this run \(SHA-256 "):
        run(config, tmp_path / "run")


def test_data_that_have_moved_are_found_by_the_folder_of_data(tmp_path: Path) -> None:
    known = own_data(table(tmp_path / "table"))
    (tmp_path / "table").rename(tmp_path / "moved")
    with pytest.raises(MissingDataError, match="name their folder by --data-dir"):
        load_own_data(known)
    assert len(load_own_data(known, data_dir=tmp_path / "moved").train) == 120


class Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Path.touch, (Path("exploded"),)  # type: ignore[return-value]


def save(name: str, values: Values) -> Callable[[Path], object]:
    return lambda folder: np.save(folder / name, values, allow_pickle=True)


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-3])


X, Y = np.zeros((120, 6)), np.arange(120) % 3
HUGE = b"\x93NUMPY\x01\x00\x76\x00" + (
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999), }".ljust(118)
)
BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "x_test.npy").unlink(), "must hold x_train.npy, y_train.npy, x_te"),
    (cut("x_train.npy"), "must hold 5,760 bytes after its header, for shape (120, 6), got 5,757"),
    (cut("y_test.npy"), "must hold 240 bytes after its header"),
    (write("x_train.npy", b""), "must be a .npy file, as numpy.save writes it"),
    (write("x_train.npy", b"PK\x03\x04" * 9), "must be a .npy file, as numpy.save writes it"),
    (write("x_train.npy", HUGE), "must hold 79,999,199,999,200,008 bytes after its header"),
    (write("x_train.npy", b"\x93NUMPY\x01\x00\xff\xff{'descr'"), "have a header of NumPy's"),
    (save("x_train.npy", np.array([Bomb()], dtype=object)), "hold numbers, got pickled objects"),
    (write("x_train.npy", pickle.dumps(Bomb())), "must be a .npy file, as numpy.save writes it"),
    (save("x_train.npy", X.astype(complex)), "hold numbers of one of the types"),
    (save("x_train.npy", X.astype(">f4")), "got '>f4'"),
    (save("x_train.npy", X.astype("U3")), "hold numbers of one of the types"),
    (save("x_train.npy", X.astype(int)), "hold bytes (uint8) or floats, got int64 [120, 6]"),
    (save("x_train.npy", X[:, 0]), "hold samples of shape [n, ...], none of it zero"),
    (save("x_train.npy", X[:, :0]), "hold samples of shape [n, ...], none of it zero"),
    (save("x_train.npy", X[:0]), "hold samples of shape [n, ...], none of it zero"),
    (save("x_train.npy", np.where(X == 0, np.nan, X)), "must hold finite numbers, got 720 that"),
    (save("x_train.npy", X + 1e300), "must hold finite numbers, got 720 that"),
    (save("x_train.npy", X[:, :5]), "hold samples like those of"),
    (save("x_test.npy", np.zeros((30, 6), np.uint8)), "hold samples like those of"),
    (save("y_train.npy", Y[:-1]), "hold integer labels of shape [120], one per sample, got int64"),
    (save("y_train.npy", Y.astype(float)), "hold integer labels of shape [120]"),
    (save("y_train.npy", Y[:, None]), "hold integer labels of shape [120]"),
    (save("y_train.npy", Y - 1), "have labels of at least 0, got -1 in"),
    (save("y_train.npy", np.where(Y == 1, 2, Y)), "of every class from 0 to 2, the largest label"),
    (save("y_train.npy", Y * 10**12), "got none of class 1 in"),
    (save("y_train.npy", Y * 0), "have two classes or more, got one in"),
    (save("y_test.npy", np.arange(30) % 4), "have labels below 3, as the training samples have"),
]


@pytest.mark.parametrize(("damage", "words"), BAD)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(
    damage: Callable[[Path], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(table(tmp_path / "table"))
    with pytest.raises((ValueError, MissingDataError)) as caught:
        own_data(tmp_path / "table")
    message = str(caught.value)
    assert words in message
    assert message.endswith(".")
    assert "\n" not in message
    assert not Path("exploded").exists()
