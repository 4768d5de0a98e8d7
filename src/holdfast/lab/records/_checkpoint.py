"""Checkpoints: a tree of tensors and plain values in a file of torch."""

import io
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.records._files import write_atomically

FORMAT = "holdfast checkpoint 1"


def save_checkpoint(path: str | os.PathLike[str], tree: dict[str, Any]) -> None:
    """Replace the checkpoint by a tree of dictionaries, lists, tensors, numbers, texts and None."""
    _check(tree)
    buffer = io.BytesIO()  # on a full disk, torch's own writer raises a RuntimeError
    torch.save({"format": FORMAT, "tree": tree}, buffer)
    write_atomically(Path(path), lambda new: new.write_bytes(buffer.getbuffer()))


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the tree of a checkpoint, with its tensors on the CPU; a foreign file runs no code."""
    file = io.BytesIO(Path(path).read_bytes())
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        reason = str(error).partition("\n")[0]
        raise failure("path", "be a whole checkpoint", f"{path} ({reason})") from error
    tree = content.get("tree") if isinstance(content, dict) else None
    if not isinstance(tree, dict) or content["format"] != FORMAT:
        raise failure("path", f"be a checkpoint ({FORMAT})", path)
    return tree


def _check(node: object) -> None:
    """Refuse what :func:`load_checkpoint` would refuse."""
    if isinstance(node, dict):
        _check([*node.keys(), *node.values()])
    elif isinstance(node, (list, tuple)):
        for value in node:
            _check(value)
    elif node is not None and not isinstance(node, (Tensor, str, int, float)):
        raise failure("tree", "hold tensors, numbers, texts and None only", repr(node))
