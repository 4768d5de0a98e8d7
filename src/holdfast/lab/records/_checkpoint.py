"""Checkpoints: a tree of tensors and plain values in one safetensors file.

The format holds numbers alone: reading a checkpoint from a stranger runs none of the stranger's code.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.records._files import write_atomically

FORMAT = "holdfast checkpoint 1"
_TENSOR = "tensor:"


def save_checkpoint(path: str | os.PathLike[str], tree: dict[str, Any]) -> None:
    """Write a tree of dictionaries, lists, tensors, numbers, texts and None, in place of the checkpoint that was there.

    Tensors are written as they are in memory order of their dimensions; strides are the business of whoever loads them.
    """
    tensors: dict[str, Tensor] = {}
    structure = _without_tensors(tree, tensors)
    content = save(
        tensors, {"format": FORMAT, "tree": json.dumps(structure)}
    )  # its own writing to files leaves scratch files when killed
    write_atomically(Path(path), lambda new: new.write_bytes(content))


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tree that was saved, with its tensors on the CPU."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise failure(
                    "path",
                    f"be a checkpoint ({FORMAT})",
                    f"{path} ({metadata.get('format', 'of another kind')})",
                )
            tree = _tree(metadata.get("tree", ""), file)
    except (SafetensorError, _DamagedTreeError) as error:
        raise failure("path", "be a whole checkpoint", f"{path} ({error})") from error
    return tree


class _DamagedTreeError(Exception):
    """The header holds no tree."""


def _tree(text: str, file: Any) -> dict[str, Any]:
    try:
        tree = _with_tensors(json.loads(text), file)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _DamagedTreeError("its values cannot be read") from error
    if not isinstance(tree, dict):
        raise _DamagedTreeError("its values are no mapping")
    return tree


def _without_tensors(node: Any, tensors: dict[str, Tensor]) -> Any:
    """The node with a reference in the place of each tensor, which goes into `tensors`."""
    if isinstance(node, Tensor):
        name = str(len(tensors))
        tensors[name] = node.detach().clone(
            memory_format=torch.contiguous_format
        )  # the format refuses shared storage
        return _TENSOR + name
    if isinstance(node, dict):
        for key in node:
            if type(key) not in (str, int):
                raise failure("tree", "have texts or whole numbers as keys", repr(key))
        # As pairs: the keys of an optimizer's state are numbers, which keys of JSON are not.
        return {"pairs": [[key, _without_tensors(value, tensors)] for key, value in node.items()]}
    if isinstance(node, (list, tuple)):
        return [_without_tensors(value, tensors) for value in node]
    if node is None or isinstance(node, (bool, int, float)):
        return node
    if isinstance(node, str) and not node.startswith(_TENSOR):
        return node
    raise failure("tree", "hold tensors, numbers, texts and None alone", repr(node))


def _with_tensors(node: Any, file: Any) -> Any:
    if isinstance(node, str) and node.startswith(_TENSOR):
        return file.get_tensor(node.removeprefix(_TENSOR))
    if isinstance(node, dict):
        return {key: _with_tensors(value, file) for key, value in node["pairs"]}
    if isinstance(node, list):
        return [_with_tensors(value, file) for value in node]
    return node
