"""A tree of seeds: one root, and an independent stream of random numbers for every path of names.

Nothing in Holdfast reads or resets a global generator. Whoever needs random numbers takes a `torch.Generator`.
"""

import hashlib

import torch


def stream(seed: int, *path: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator at `path` below the root `seed`.

    Equal arguments give equal streams; different paths give streams that do not depend on each other.

    Example:
        >>> a = stream(7, "attack", 3)
        >>> b = stream(7, "attack", 3)
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        True
    """
    text = repr((int(seed), *path)).encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
    return torch.Generator(device=device).manual_seed(digest % 2**63)
