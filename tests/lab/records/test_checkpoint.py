"""Checkpoints give back what they were given, and say so when they cannot."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from holdfast.lab.records import load_checkpoint, save_checkpoint
from holdfast.lab.records._checkpoint import FORMAT


def assert_same_tree(found: Any, wanted: Any) -> None:
    """Equal to the bit, tuples as lists."""
    if isinstance(wanted, Tensor):
        assert isinstance(found, Tensor)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.device.type == "cpu"
        assert found.detach().contiguous().flatten().view(torch.uint8).tolist() == (
            wanted.detach().contiguous().flatten().view(torch.uint8).tolist()
        )
    elif isinstance(wanted, dict):
        assert isinstance(found, dict)
        assert [(type(key), key) for key in found] == [(type(key), key) for key in wanted]
        for key, value in wanted.items():
            assert_same_tree(found[key], value)
    elif isinstance(wanted, (list, tuple)):
        assert isinstance(found, list)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same_tree(one, other)
    else:
        assert type(found) is type(wanted)
        assert found == wanted or (found != found and wanted != wanted)
        assert (
            not isinstance(wanted, float)
            or math.copysign(1.0, found) == math.copysign(1.0, wanted)
            or wanted != wanted
        )


def there_and_back(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    save_checkpoint(folder / "checkpoint", tree)
    return load_checkpoint(folder / "checkpoint")


def test_plain_values(tmp_path: Path) -> None:
    tree = {
        "numbers": [
            0,
            -1,
            2**80,
            0.1,
            -0.0,
            1e-320,
            math.inf,
            -math.inf,
            math.nan,
            True,
            False,
            None,
        ],
        "texts": ["", "tensor", "Füße\n\x00", "pairs"],
        "empty": [{}, [], ()],
        "keys": {0: "a", 1: {2: {}}, "0": "b", -3: None, "pairs": 1, "tensor:0": 2},
        "tuple": (1, (2, 3)),
    }
    assert_same_tree(there_and_back(tree, tmp_path), tree)
    assert_same_tree(there_and_back({}, tmp_path), {})


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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4, 5)], ids=str)
def test_tensors(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tree = {"a": (100 * torch.randn(shape)).to(dtype), "b": [torch.zeros(shape, dtype=dtype)]}
    assert_same_tree(there_and_back(tree, tmp_path), tree)


def test_tensors_in_strange_memory(tmp_path: Path) -> None:
    base = torch.randn(4, 6, 8, 8)
    parameter = torch.nn.Parameter(torch.randn(3, 2))
    tree = {
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "transposed": base[0, 0].T,
        "sliced": base[::2, 1:5:2],
        "expanded": torch.ones(1).expand(5, 3),
        "shared": [base, base, base.view(-1), base[1:]],
        "parameter": parameter,
        "parameter's own": parameter.data,
        "not finite": torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45]),
        "offset": torch.arange(10)[3:],
    }
    found = there_and_back(tree, tmp_path)
    assert_same_tree(found, tree)
    found["shared"][0].zero_()
    assert_same_tree(found["shared"][1], base)  # no two of them share memory


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
    texts = st.text().filter(lambda text: not text.startswith("tensor:"))
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts | tensors
    keys = st.text() | st.integers()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


@given(tree=st.dictionaries(st.text(), trees(), max_size=4))
def test_any_tree(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    assert_same_tree(there_and_back(tree, tmp_path_factory.mktemp("tree")), tree)


REFUSED: list[Any] = [
    object(),
    {1, 2},
    b"bytes",
    1j,
    torch.float32,
    "tensor:0",
    Path("x"),
    lambda: 0,
]


@pytest.mark.parametrize("leaf", REFUSED, ids=[type(leaf).__name__ for leaf in REFUSED])
def test_what_it_cannot_hold_is_refused_and_the_old_one_stays(tmp_path: Path, leaf: Any) -> None:
    save_checkpoint(tmp_path / "checkpoint", {"old": 1})
    with pytest.raises(
        ValueError, match=r"^`tree` must hold tensors, numbers, texts and None alone, got "
    ):
        save_checkpoint(tmp_path / "checkpoint", {"a": [{"b": leaf}]})
    assert load_checkpoint(tmp_path / "checkpoint") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    "key", [(1, 2), object(), frozenset()], ids=["tuple", "object", "frozenset"]
)
def test_keys_that_it_cannot_hold_are_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(ValueError, match=r"^`tree` must "):
        save_checkpoint(tmp_path / "checkpoint", {"a": {key: 1}})


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_truncated_one_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "checkpoint"
    save_checkpoint(path, {"a": torch.randn(100, 10), "b": {"c": 1}})
    content = path.read_bytes()
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


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"format": "pt"},
        {"format": "holdfast checkpoint 2", "tree": "{}"},
        {"format": FORMAT},
        {"format": FORMAT, "tree": "[1"},
        {"format": FORMAT, "tree": "[1]"},
        {"format": FORMAT, "tree": '{"a": 3}'},
        {"format": FORMAT, "tree": '{"pairs": [["a", "tensor:7"]]}'},
    ],
    ids=str,
)
def test_another_safetensors_file_is_refused(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    save_file({"0": torch.ones(2)}, str(tmp_path / "other"), metadata)
    with pytest.raises(ValueError, match=r"^`path` must be a .*checkpoint.*, got .*other"):
        load_checkpoint(tmp_path / "other")


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="checkpoint"):
        load_checkpoint(tmp_path / "checkpoint")


def test_a_full_disk_is_an_os_error_and_the_old_one_stays(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", {"old": 1})
    code = (
        "import pathlib, resource, signal, sys, torch\n"
        "from holdfast.lab.records import save_checkpoint\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    save_checkpoint(pathlib.Path(sys.argv[1]), {'new': torch.ones(10_000)})\n"
        "except OSError:\n"
        "    sys.exit(7)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "checkpoint")], capture_output=True, text=True
    )
    assert load_checkpoint(tmp_path / "checkpoint") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert ended.returncode == 7, ended.stderr
