from dataclasses import dataclass, replace
from typing import final

from holdfast.aggregators import Aggregate, Aggregator, GeometricMedian, Given
from holdfast.checks import check_positive
from holdfast.geometry import Rows
from holdfast.memory import AugmentedRows
from holdfast.robust_step._sketched_rows import SketchedRows
from holdfast.selectors import NormSampling, Tile


@final
@dataclass(frozen=True, kw_only=True)
class SketchedGeometricMedian(Aggregator):
    r"""The geometric median with weights from a sketch of the rows: no block, no memory, every column at every step.

    Draws a share of the columns as BGMD does, finds the weights of the geometric median from their importance-weighted inner
    products (with lengths from all columns), and applies them to the whole rows: O(nd + n²k). `gap` is certified for the sketch. Resists any
    minority, whatever is drawn. It looks at columns itself, so wrappers cannot stand before it. The call brings the `generator`.

    Args:
        fraction: the share of tiles that is looked at, in (0, 1].
        tile: columns that are drawn together; see :class:`~holdfast.selectors.NormSampling`.
        tolerance: the certified gap to reach.

    Example:
        >>> rows = torch.randn(9, 1000, generator=torch.Generator().manual_seed(0))
        >>> rows[:4] *= -1e12
        >>> bool(SketchedGeometricMedian(fraction=0.2)(rows, generator=torch.Generator()).norm() < 40)
        True
    """

    fraction: float = 0.1
    tile: Tile = None
    tolerance: float = 1e-6

    name = "sketched-geometric-median"
    reads_products = True
    reads_columns = True
    takes = frozenset({"row_weights", "generator"})
    needs = frozenset({"generator"})

    def __post_init__(self) -> None:
        check_positive("tolerance", self.tolerance)
        NormSampling(fraction=self.fraction, tile=self.tile)

    @property
    def n_needed(self) -> int:
        return 1

    def _n_resisted(self, n: int) -> int:
        return (n - 1) // 2

    def _aggregate(self, rows: Rows, given: Given) -> Aggregate:
        assert given.generator is not None
        selector = NormSampling(fraction=self.fraction, tile=self.tile)
        augmented = AugmentedRows(rows, row_weights=given.row_weights)
        tiling = selector.tiling(rows.sections)
        scores = augmented.scores(tiling, capped=True)
        block = selector.select(tiling, scores, step=0, generator=given.generator)
        rule = GeometricMedian(tolerance=self.tolerance)
        sketched = rows if block.is_whole else SketchedRows(augmented, block)
        aggregate = rule.aggregate(sketched, row_weights=given.row_weights)
        return replace(aggregate, vector=aggregate.vector.to(rows.dtype))
