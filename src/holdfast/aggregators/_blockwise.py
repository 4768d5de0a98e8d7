from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from holdfast.aggregators._aggregator import Aggregate, Aggregator, as_rule, rules
from holdfast.aggregators._call import GENERATOR, ROW_WEIGHTS, CallContext
from holdfast.aggregators._wrapper import OuterRule
from holdfast.checks import check_count, check_finite_majority, failure
from holdfast.geometry import (
    ALONE,
    ColumnRows,
    DenseRows,
    Outcome,
    Piece,
    Rows,
    RowSets,
    Solutions,
    Tiling,
    by_column,
    full_precision,
    working_dtype,
)

ENTRIES = 2**20
"""Entries of the rows that are solved together: their Gram matrices stay in the cache."""

WIDE = 4096
"""Tiles with more columns are solved one by one: their products take more time than the solver."""


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Blockwise(OuterRule):
    r"""Applies `rule` to each tile of the columns separately.

    Cuts every parameter into tiles of `tile` columns (the last one may be narrower) and returns the
    results of `rule` on the tiles side by side: with the geometric median, a block coordinate
    geometric median. A single rule for all columns lets an attacker concentrate the deviation of
    all columns in a few of them; here each tile is bounded separately. `rule` is any rule that
    reads inner products or lengths. Resists what `rule` resists, in every tile. A row that is not
    finite in some column is left out of all tiles, because it is known to be bad.

    The result has `tile_weights` [n_tiles, n] instead of weights. A row is `rejected` if it is
    rejected in every tile; `gap` is the largest gap and `outcome` the worst outcome of all tiles.
    `row_weights` and a `generator` are passed on to `rule`, which must need neither a reference nor
    a score.

    :class:`GeometricMedian`, :class:`RadiusFilter` and :class:`Mean` solve many tiles at once, in a
    few microseconds per tile of 64 columns and 20 rows, and in some tens of microseconds as the
    inner rule of :class:`NearestNeighborMixing`. Other rules solve one tile after the other. Reads
    the data three times and keeps :math:`O(nd)` numbers. The process must hold all columns.

    Reference: none; the paper's Algorithm 1 takes one median of its whole block.

    Args:
        tile: columns per tile, or "parameter" for whole parameters (which are the tensors of a list
            if the rows have no layout).
        rule: the rule, or its name.

    Example:
        >>> rows = torch.tensor([[1.0, 5.0], [2.0, 6.0], [90.0, 7.0]])
        >>> Blockwise(tile=1, rule="medoid")(rows)
        tensor([2., 6.])
    """

    tile: int | Literal["parameter"] = 64
    rule: Aggregator | str

    name = "blockwise"
    reads_products = True
    reads_columns = True

    def __post_init__(self) -> None:
        tile: object = self.tile  # whatever it was given
        if isinstance(tile, str) and tile != "parameter":
            raise failure("tile", "be a number of columns or 'parameter'", repr(tile))
        if tile != "parameter":
            check_count("tile", tile, at_least=1)
        rule = as_rule(self.rule)
        if rule.reads_columns:
            raise failure("rule", "read inner products or lengths only", rule)
        needed = sorted(rule.needs - GENERATOR - ROW_WEIGHTS)
        if needed:
            requirement = f"need no `{needed[0]}`, which has no meaning for a tile"
            raise failure("rule", requirement, rule)
        object.__setattr__(self, "rule", rule)

    @property
    def takes(self) -> frozenset[str]:
        return self.inner.takes & (ROW_WEIGHTS | GENERATOR)

    def tiling(self, sections: tuple[int, ...]) -> Tiling:
        """The tiles of parameters of these sizes."""
        return Tiling(sections, None if self.tile == "parameter" else self.tile)

    def _aggregate(self, rows: Rows, context: CallContext) -> Aggregate:
        rows = by_column(rows)
        if rows.holders is not ALONE:
            requirement = f"have all columns in one process (needed by {self})"
            raise failure("rows", requirement, "some of the columns")
        tiling = self.tiling(rows.sections)
        found = _Tiles(self.inner, rows, tiling, context).aggregate()
        if found is None:
            finite = rows.finite()
            check_finite_majority(finite)
            found = _Tiles(self.inner, rows, tiling, context, finite).aggregate()
        assert found is not None, "the rows that are left are finite"
        return found


@final
class _Tiles:
    """All tiles of some rows: solves and sums one group of tiles after the other.

    Args:
        rule: the rule for every tile.
        rows: all rows.
        tiling: the tiles of their columns.
        context: the arguments of the call.
        finite: bool [n] the rows that are finite throughout; None if that is not known yet.
    """

    def __init__(
        self,
        rule: Aggregator,
        rows: ColumnRows,
        tiling: Tiling,
        context: CallContext,
        finite: Tensor | None = None,
    ) -> None:
        self._rule, self._rows, self._tiling, self._context = rule, rows, tiling, context
        self._is_checked = finite is not None
        self._kept = torch.arange(rows.n) if finite is None else torch.nonzero(finite)[:, 0]
        self._vector = torch.empty(rows.d, dtype=rows.dtype, device=rows.device)
        self._weights = torch.zeros(tiling.n_tiles, rows.n, dtype=torch.float64)
        self._rejected = torch.ones(rows.n, dtype=torch.bool)
        self._outcome, self._steps = Outcome.CLOSED_FORM, 0
        self._gap: float | None = None

    def aggregate(self) -> Aggregate | None:
        """The aggregate; None if a row is not finite, and that was not known."""
        for pieces, tiled in self._groups():
            if not self._solve_group(pieces, tiled):
                return None
        return Aggregate(
            self._vector,
            None,
            self._rejected,
            self._outcome,
            self._gap,
            self._steps,
            tile_weights=self._weights,
        )

    def _groups(self) -> Iterator[tuple[list[Piece], Tensor]]:
        """Pieces, and the kept rows [n_kept, t, width] in their t tiles, the widest of `width`."""
        rows = self._rows if len(self._kept) == self._rows.n else self._rows.keep(self._kept)
        most = max(1, ENTRIES // rows.n)
        waiting: dict[int, list[tuple[Piece, Tensor]]] = {}
        for piece, tiled in rows.groups(self._tiling, most):
            # Small parameters are solved together, because a group costs a millisecond; narrow
            # tiles with the others, as if they had further columns of zeros.
            width = self._tiling.width or piece.width
            some = waiting.setdefault(width, [])
            some.append((piece, tiled.cpu()))
            if sum(one.stop - one.start for one, _ in some) > most // 2:
                yield _together(waiting.pop(width))
        for some in waiting.values():
            yield _together(some)

    def _solve_group(self, pieces: Sequence[Piece], tiled: Tensor) -> bool:
        """Solve the tiles [n_kept, t, width]; return whether all rows may be finite."""
        _, n_tiles, width = tiled.shape
        numbers = torch.cat([torch.arange(one.first, one.first + one.n_tiles) for one in pieces])
        sums = torch.empty(n_tiles, width, dtype=tiled.dtype)
        left = torch.arange(n_tiles)
        if width <= WIDE:
            left = self._solve_together(numbers, tiled, sums)
        if not self._is_checked:
            # A non-finite entry leaves its tile unsolved, or shows in the sum.
            is_finite = len(left) == n_tiles or bool(torch.isfinite(sums.sum()))
            if not is_finite or not bool(torch.isfinite(tiled[:, left]).all()):
                return False
        start = 0
        for piece in pieces:
            at = slice(start, start + piece.n_tiles)
            for i in left[(left >= at.start) & (left < at.stop)].tolist():
                self._solve_one(int(numbers[i]), tiled[:, i, : piece.width], sums[i, : piece.width])
            found = sums[at, : piece.width].flatten()
            self._vector[piece.start : piece.stop] = found.to(self._vector.device)
            start = at.stop
        return True

    def _solve_together(self, numbers: Tensor, tiled: Tensor, sums: Tensor) -> Tensor:
        """Solve the tiles at once and write the sums [t, width]; return those unsolved."""
        rows = tiled.transpose(0, 1).to(working_dtype(tiled.dtype))
        n_lost = self._rows.n - len(self._kept)
        sets = RowSets(rows=rows, dtype=tiled.dtype, n_lost=n_lost)
        found = self._rule._solve_sets(sets, self._context.for_rows(self._kept))
        if found is None:
            return torch.arange(len(numbers))
        _combine(found, rows, sums)
        solved = torch.nonzero(found.is_certain)[:, 0]
        self._weights[numbers[solved][:, None], self._kept] = found.weights[solved]
        if len(solved):
            self._rejected[self._kept] &= found.left_out[solved].all(0)
            gap = None if found.gaps is None else float(found.gaps[solved].max())
            self._note(found.outcome, gap, found.steps)
        return torch.nonzero(~found.is_certain)[:, 0]

    def _solve_one(self, tile: int, part: Tensor, target: Tensor) -> None:
        """Solve one tile of the kept rows [n_kept, width]."""
        # Rows that are lost stay lost: the rule knows that they are bad.
        rows = part.new_full((self._rows.n, part.shape[1]), torch.nan)
        rows[self._kept] = part
        found = self._rule._aggregate(DenseRows(rows), self._context)
        assert found.weights is not None, "a rule that reads no columns combines rows"
        target[:], self._weights[tile] = found.vector, found.weights
        self._rejected &= found.rejected
        self._note(found.outcome, found.gap, found.steps)

    def _note(self, outcome: Outcome, gap: float | None, steps: int) -> None:
        """Keep the worst of the outcomes, the largest gap, the most steps."""
        self._outcome = max(self._outcome, outcome, key=lambda one: one.rank)
        self._steps = max(self._steps, steps)
        if gap is not None:
            self._gap = gap if self._gap is None else max(self._gap, gap)


def _together(some: Sequence[tuple[Piece, Tensor]]) -> tuple[list[Piece], Tensor]:
    """The pieces, and their tiles side by side; without a copy if there is only one."""
    pieces, parts = [piece for piece, _ in some], [tiled for _, tiled in some]
    if len(parts) == 1:
        return pieces, parts[0]
    width = max(piece.width for piece in pieces)
    padded = [
        part
        if part.shape[2] == width
        else torch.nn.functional.pad(part, (0, width - part.shape[2]))
        for part in parts
    ]
    return pieces, torch.cat(padded, dim=1)


def _combine(found: Solutions, rows: Tensor, sums: Tensor) -> None:
    """Write the combinations of the rows [t, n, width] to `sums` [t, width]."""
    exact = found.exact
    if exact is None or not bool(exact.all()):
        with full_precision():
            sums[:] = torch.bmm(found.weights[:, None].to(rows.dtype), rows)[:, 0]
    if exact is not None and bool(exact.any()):
        wide, weights = rows[exact].double(), found.weights[exact]
        sums[exact] = torch.bmm(weights[:, None], wide)[:, 0].to(sums.dtype)
