from dataclasses import dataclass
from typing import final

import torch

from holdfast.aggregators._aggregator import Aggregator, rules
from holdfast.aggregators._call import GENERATOR, CallContext
from holdfast.aggregators._wrapper import Wrapper
from holdfast.checks import failure
from holdfast.geometry import Rows, SketchedRows, by_column
from holdfast.selectors import NormSampling, Tile, row_norms

COLUMNS = 2**14
"""Columns of a sketch by default."""


@final
@rules.register
@dataclass(frozen=True, kw_only=True)
class Sketched(Wrapper):
    r"""Passes a sketch of the rows to `rule`: inner products of some columns, exact lengths and
    sums.

    Draws a share of the columns as the paper's Algorithm 2 does (see
    :class:`~holdfast.selectors.NormSampling`), estimates the inner products of the rows from them,
    and scales the estimates to the lengths of the whole rows. `rule`, any rule in Gram space,
    computes its weights from these; the weights are applied to the whole rows. Costs
    :math:`O(nd + n^2 k)` for k columns instead of :math:`O(n^2 d)`. Certified gaps are those of the
    sketch. Resists what `rule` resists for every draw, because no row can hide its length. The call
    passes the `generator`.

    Reference: the paper's Algorithm 2 for the choice of columns; Horvitz and Thompson, *A
    Generalization of Sampling Without Replacement From a Finite Universe* (1952), for the
    estimates. Deviation: exact lengths.

    Args:
        fraction: the share of tiles that is read, in (0, 1]. By default about 16,384 columns are
            read, which estimate cosines to about a percent for any d.
        tile: columns that are drawn together; see :class:`~holdfast.selectors.NormSampling`.
        rule: the rule, or its name; it must not read single columns.

    Example:
        >>> rows = torch.randn(9, 1000, generator=torch.Generator().manual_seed(0))
        >>> rows[:4] *= -1e12
        >>> rule = Sketched(fraction=0.2, rule="geometric-median")
        >>> bool(rule(rows, generator=torch.Generator()).norm() < 40)
        True
    """

    fraction: float | None = None
    tile: Tile = None
    rule: Aggregator | str

    name = "sketched"
    _own_needs = GENERATOR
    reads_products = True
    reads_columns = True

    def __post_init__(self) -> None:
        self._set_rule()
        if self.inner.reads_columns:
            requirement = "read inner products or lengths only, because a sketch has no columns"
            raise failure("rule", requirement, self.inner)
        # Checks both.
        NormSampling(fraction=1.0 if self.fraction is None else self.fraction, tile=self.tile)

    def _transform(self, rows: Rows, context: CallContext) -> tuple[Rows, CallContext]:
        assert context.generator is not None
        rows = by_column(rows)
        fraction = min(1.0, COLUMNS / rows.d) if self.fraction is None else self.fraction
        selector = NormSampling(fraction=fraction, tile=self.tile)
        tiling = selector.tiling(rows.sections)
        norms, lengths = row_norms(rows, tiling, capped=True, row_weights=context.row_weights)
        # Holders of different columns draw different numbers of tiles: each from a generator of
        # its own, so that the one they share advances equally.
        shared = context.generator
        seed = torch.randint(2**62, (), generator=shared, device=shared.device)
        own = torch.Generator().manual_seed(int(seed))
        block = selector.select(tiling, norms, step=0, generator=own)
        if rows.holders.all(block.is_whole):
            return rows, context
        return SketchedRows(rows, block, lengths), context
