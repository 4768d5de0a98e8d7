from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_share, check_vector, failure
from holdfast.exchange._payload import Payload, Wire, check_wire, encode
from holdfast.geometry import Block, Tiling, length
from holdfast.layout import Layout

LIMIT = 100.0
"""An update of more than this many times the median norm of recent ones is left out."""

RECENT = 20
"""Number of updates that count as recent."""

FEWEST = 5
"""Least number of recent updates to compare a norm with."""

CACHED = 2**17
"""Entries that are added before their norms are taken, while they are in the cache."""


@final
class WorkerMemory:
    r"""What one worker has not sent yet, :math:`r_i`.

    In every round the worker adds its update :math:`u_i`, :math:`a_i = u_i + \beta r_i`, reports
    the norms of the tiles of :math:`a_i`, sends its values on the agreed block, and keeps the rest:

        memory.add(update)
        report = memory.report()
        payload = memory.payload(block)
        memory.sent(block, payload)

    Nothing is lost: the sent part and the kept part add up to :math:`a_i` bitwise, for rounded
    values as well, because the rounding error is kept. A worker that misses a round only adds. A
    round that fails between :meth:`payload` and :meth:`sent` has the effect of a missed round.

    An update that is not finite, or whose norm before `scale` is more than 100 times the median
    norm of the last 20 that were finite and not zero, is left out and counted, because it would
    stay in the memory as long as its tiles wait. Of updates that have become so long for good, the
    first ten are left out. The first five updates are only checked to be finite.

    Costs one pass over the memory per round (and one over the update for its norm), and no other
    vector of this size.

    Args:
        layout: the parameters, whose widest dtype (at least float32) and device the memory has.
        tile: the number of columns that are reported and sent together; the last tile of a
            parameter may be narrower.
        beta: factor of the memory in every round; below 1 old updates fade.
        wire: the dtype of the values that are sent.

    Attributes:
        n_left_out: number of updates that were left out.

    Reference: the paper's memory, Algorithm 1, for one worker; Stich et al., *Sparsified SGD with
    Memory* (NeurIPS 2018). Deviation: all workers send the agreed block instead of their own.

    Example:
        >>> layout = Layout([torch.zeros(4, requires_grad=True)])
        >>> memory = WorkerMemory(layout, tile=2)
        >>> memory.add(torch.tensor([3.0, 4.0, 0.0, 1.0]))
        True
        >>> memory.report()
        tensor([5., 1.], dtype=torch.bfloat16)
        >>> block = Block(memory.tiling, torch.tensor([0]))
        >>> payload = memory.payload(block)
        >>> memory.sent(block, payload)
        >>> payload.values, memory.vector
        (tensor([3., 4.]), tensor([0., 0., 0., 1.]))
    """

    def __init__(
        self, layout: Layout, *, tile: int = 64, beta: float = 1.0, wire: Wire = "float32"
    ) -> None:
        check_count("tile", tile, at_least=1)
        if beta != 1.0:
            check_share("beta", beta, below=1.0)
        check_wire(wire)
        self.tiling = Tiling(layout.sizes, tile)
        self.beta, self.wire = beta, wire
        self.n_left_out = 0
        self._layout = layout
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.vector = torch.zeros_like(layout.values())
        """[d] the memory; changed in place."""
        self._norms = self.vector.new_zeros(self.tiling.n_tiles)

    def __repr__(self) -> str:
        return f"WorkerMemory(d={self._layout.d}, tile={self.tiling.width}, wire={self.wire!r})"

    @torch.no_grad()
    def add(
        self, update: Tensor | Sequence[Tensor], *, scale: float | Sequence[float] = 1.0
    ) -> bool:
        """Add an update times `scale`; returns whether it was used.

        Args:
            update: [d], or one tensor per parameter in its shape.
            scale: a factor, such as the learning rate of gradients, or one per parameter.
        """
        parts = self._parts(update)
        scales = [scale] * len(parts) if isinstance(scale, (int, float)) else list(scale)
        lengths = torch.tensor([length(part) for part in parts], dtype=torch.float64)
        added = length(lengths * torch.tensor(scales, dtype=torch.float64))
        # Without the scale, because learning rates may change by any factor.
        norm = length(lengths)
        is_usual = len(self._recent) < FEWEST or norm <= LIMIT * median(self._recent)
        # NaN compares false.
        is_used = added <= torch.finfo(self.vector.dtype).max and is_usual
        if 0 < norm < float("inf"):
            # Whether it is used or not: otherwise updates that grow once would be lost forever.
            self._recent.append(norm)
        if is_used:
            start = 0
            for part, factor in zip(parts, scales, strict=True):
                self._add_part(start, part, factor)
                start += len(part)
        else:
            self.n_left_out += 1
        return is_used

    def _parts(self, update: Tensor | Sequence[Tensor]) -> list[Tensor]:
        """The update by parameter, flat."""
        if isinstance(update, Tensor):
            check_vector("update", update, self._layout.d)
            return list(torch.split(update, list(self._layout.sizes)))
        shapes = [tuple(part.shape) for part in update]
        if shapes != [tuple(shape) for shape in self._layout.shapes]:
            wanted = [tuple(shape) for shape in self._layout.shapes]
            raise failure("update", f"have the parameters' shapes {wanted}", shapes)
        return [part.flatten() for part in update]

    def _add_part(self, start: int, part: Tensor, scale: float) -> None:
        """Add the update of the parameter whose columns begin at `start`, and take the norms."""
        width = self.tiling.width
        assert width is not None
        step = max(CACHED // width, 1) * width
        first = self.tiling.tile_at(start)
        for at in range(0, len(part), step):
            piece = self.vector[start + at : start + min(at + step, len(part))]
            if self.beta != 1.0:
                piece.mul_(self.beta)
            piece.add_(part[at : at + step], alpha=scale)
            n_whole = len(piece) // width
            tile = first + at // width
            if n_whole:
                whole = piece[: n_whole * width].view(n_whole, width)
                torch.linalg.vector_norm(whole, dim=1, out=self._norms[tile : tile + n_whole])
            if len(piece) % width:
                rest = torch.linalg.vector_norm(piece[n_whole * width :])
                self._norms[tile + n_whole] = rest

    def report(self) -> Tensor:
        """[n_tiles] norms of the memory over each tile, in bfloat16."""
        return self._norms.to(torch.bfloat16)

    def payload(self, block: Block) -> Payload:
        """The values on the block, which stay in the memory until :meth:`sent` is called."""
        self._check(block)
        values = self.tiling.take(self.vector, block.tiles.to(self.vector.device))
        return encode(values, block, self.wire)

    @torch.no_grad()
    def sent(self, block: Block, payload: Payload) -> None:
        """Remove the sent values, after the round has ended with one direction for all."""
        self._check(block)
        tiles, tiling = block.tiles.to(self.vector.device), self.tiling
        if payload.values.dtype is self.vector.dtype:
            tiling.clear(self.vector, tiles)
            self._norms[tiles] = 0.0
            return
        kept = tiling.take(self.vector, tiles) - payload.decoded(block, self.vector.dtype)
        tiling.put(self.vector, tiles, kept)
        for piece, local, at in tiling.split(tiles):
            rest = piece.of(self.vector)[local]
            self._norms[tiles[at]] = torch.linalg.vector_norm(rest, dim=1)

    def _check(self, block: Block) -> None:
        if block.tiling != self.tiling:
            raise failure("block", f"be one of {self.tiling}", block.tiling)

    def clear(self) -> None:
        """Empty the memory, as for a new worker."""
        self.vector.zero_()
        self._norms.zero_()
        self._recent.clear()
        self.n_left_out = 0

    def state_dict(self) -> dict[str, Any]:
        """The memory by the name of each parameter, and the norms of recent updates."""
        parts = zip(self._layout.names, self._layout.split(self.vector), strict=True)
        return {
            "memory": {name: part.clone() for name, part in parts},
            "recent": list(self._recent),
            "n_left_out": self.n_left_out,
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise an error if this is no state of a memory of these parameters."""
        known = {"memory", "recent", "n_left_out"}
        if not isinstance(state, dict) or set(state) != known:
            got = sorted(state) if isinstance(state, dict) else type(state).__name__
            raise failure("state", f"be a mapping with the keys {sorted(known)}", got)
        shapes = dict(zip(self._layout.names, map(tuple, self._layout.shapes), strict=True))
        found = {name: tuple(part.shape) for name, part in state["memory"].items()}
        if found != shapes:
            raise failure("state['memory']", f"have the parameters {shapes}", found)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly; the state of another model raises an error."""
        self.check_state(state)
        names = self._layout.names
        for part, name in zip(self._layout.split(self.vector), names, strict=True):
            part.copy_(state["memory"][name])
        self._recent = deque(state["recent"], maxlen=RECENT)
        self.n_left_out = int(state["n_left_out"])
        self._norms = self.tiling.norms(self.vector)
