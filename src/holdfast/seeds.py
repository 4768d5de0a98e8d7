"""A tree of seeds: one root, and an independent stream of random numbers for each path of names.

Holdfast neither reads nor resets a global generator. Everything random takes a `torch.Generator`.
"""

import hashlib

import torch


def stream(seed: int, *path: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the generator at `path` below the root `seed`.

    Equal arguments give equal streams; different paths give independent streams.

    Example:
        >>> a = stream(7, "attack", 3)
        >>> b = stream(7, "attack", 3)
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        True
    """
    text = repr((int(seed), *path)).encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
    return torch.Generator(device=device).manual_seed(digest % 2**63)
