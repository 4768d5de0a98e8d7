"""Checkpoints restore what was saved; other files are refused."""

import math
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.lab.records import load_checkpoint, save_checkpoint
from holdfast.lab.records._checkpoint import FORMAT
from tests.lab.processes import in_process, save_to_full_disk

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.int32,
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
]


def assert_same_tree(found: Any, wanted: Any) -> None:
    """Equal to the bit."""
    assert type(found) is type(wanted)
    if isinstance(wanted, Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert (found.device.type, found.stride()) == ("cpu", wanted.stride())
        assert found.contiguous().flatten().view(torch.uint8).tolist() == (
            wanted.contiguous().flatten().view(torch.uint8).tolist()
        )
    elif isinstance(wanted, dict):
        assert [(type(key), key) for key in found] == [(type(key), key) for key in wanted]
        for key, value in wanted.items():
            assert_same_tree(found[key], value)
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same_tree(one, other)
    elif isinstance(wanted, float):
        assert found.hex() == wanted.hex() or math.isnan(found) == math.isnan(wanted) is True
    else:
        assert found == wanted


def there_and_back(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    save_checkpoint(folder / "checkpoint", tree)
    return load_checkpoint(folder / "checkpoint")


def test_plain_values(tmp_path: Path) -> None:
    numbers = [0, -1, 2**80, 0.1, -0.0, 1e-320, math.inf, -math.inf, math.nan, True, False, None]
    tree = {
        "numbers": numbers,
        "texts": ["", "tensor", "Füße\n\x00", "format"],
        "empty": [{}, [], ()],
        "keys": {0: "a", 1: {2: {}}, "0": "b", -3: None, "format": 1},
        "tuple": (1, (2, 3)),
    }
    assert_same_tree(there_and_back(tree, tmp_path), tree)
    assert_same_tree(there_and_back({}, tmp_path), {})


def test_tensors(tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = [(), (0,), (3,), (2, 0, 3), (2, 3, 4, 5)]
    tree = {
        f"{dtype} {shape}": [(100 * torch.randn(shape)).to(dtype), torch.zeros(shape, dtype=dtype)]
        for dtype in DTYPES
        for shape in shapes
    }
    assert_same_tree(there_and_back(tree, tmp_path), tree)


def test_tensors_in_strange_memory(tmp_path: Path) -> None:
    """Strides are kept, because sums over other strides may round differently."""
    base = torch.randn(4, 6, 8, 8)
    tree = {
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "transposed": base[0, 0].T,
        "sliced": base[::2, 1:5:2],
        "expanded": torch.ones(1).expand(5, 3),
        "shared": [base, base, base.view(-1), base[1:]],
        "not finite": torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45]),
        "offset": torch.arange(10)[3:],
    }
    assert_same_tree(there_and_back(tree, tmp_path), tree)


def test_saving_leaves_the_tree_as_it_was(tmp_path: Path) -> None:
    tensor = torch.randn(4, 6).T
    tree: dict[str, Any] = {"a": (tensor, {"b": tensor})}
    save_checkpoint(tmp_path / "checkpoint", tree)
    assert tree["a"][0] is tree["a"][1]["b"] is tensor
    assert tensor.stride() == (1, 6)


def trees() -> st.SearchStrategy[Any]:
    tensors = st.builds(
        lambda shape, dtype, seed: (
            9 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        ).to(dtype),
        st.lists(st.integers(0, 3), max_size=3),
        st.sampled_from(DTYPES),
        st.integers(0, 9),
    )
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | tensors
    keys = st.text() | st.integers()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


@given(tree=st.dictionaries(st.text(), trees(), max_size=4))
def test_any_tree(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    assert_same_tree(there_and_back(tree, tmp_path_factory.mktemp("tree")), tree)


def test_what_it_cannot_hold_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", {"old": 1})
    leaves = [object(), {1, 2}, b"bytes", 1j, torch.float32, Path("x"), lambda: 0]
    trees: list[dict[str, Any]] = [{"a": [{"b": leaf}]} for leaf in leaves]
    for tree in [*trees, {"a": {object(): 1}}, {"a": {frozenset(): 1}}]:
        with pytest.raises(
            ValueError, match=r"^`tree` must hold tensors, numbers, texts and None only, got "
        ):
            save_checkpoint(tmp_path / "checkpoint", tree)
        assert load_checkpoint(tmp_path / "checkpoint") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    save_checkpoint(path, {"a": torch.randn(100, 10), "b": {"c": 1}})
    content = path.read_bytes()
    for share in (0.0, 0.001, 0.1, 0.5, 0.999):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(
            ValueError, match=r"^`path` must be a whole checkpoint, got .*checkpoint \(.*\)\.$"
        ):
            load_checkpoint(path)


@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^`path` must be a"):
        load_checkpoint(path)


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("made by foreign code",))


def test_other_files_of_torch_are_refused_and_run_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "other"
    others = [torch.ones(2), {}, [1], {"format": "pt"}, {"format": "holdfast checkpoint 2"}]
    for other in [*others, {"format": FORMAT}, {"format": FORMAT, "tree": [1]}, Malicious()]:
        torch.save(other, path)
        with pytest.raises(ValueError, match=r"^`path` must be a .*checkpoint.*, got .*other"):
            load_checkpoint(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match=r"^`path` must be a .*checkpoint.*, got .*other"):
        load_checkpoint(path)
    assert [found.name for found in tmp_path.iterdir()] == ["other"]


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="checkpoint"):
        load_checkpoint(tmp_path / "checkpoint")


def test_a_full_disk_is_an_os_error_and_the_old_one_stays(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", {"old": 1})
    assert in_process(save_to_full_disk, tmp_path / "checkpoint") == 7
    assert load_checkpoint(tmp_path / "checkpoint") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
