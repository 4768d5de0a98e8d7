"""Selectors choose the columns that a step moves or a sketch reads."""

from holdfast.geometry import Block
from holdfast.selectors._cyclic import Cyclic
from holdfast.selectors._everything import Everything
from holdfast.selectors._norm_sampling import NormSampling
from holdfast.selectors._row_norms import row_norms
from holdfast.selectors._selector import Selector, Tile, TileSelector, selectors
from holdfast.selectors._top_norm import TopNorm, largest
from holdfast.selectors._uniform import Uniform

__all__ = [
    "Block",
    "Cyclic",
    "Everything",
    "NormSampling",
    "Selector",
    "Tile",
    "TileSelector",
    "TopNorm",
    "Uniform",
    "largest",
    "row_norms",
    "selectors",
]
