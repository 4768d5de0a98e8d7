"""Selectors: which columns a step moves, and the probability of each to be chosen."""

from holdfast.geometry import Block
from holdfast.registry import Registry
from holdfast.selectors._cyclic import Cyclic
from holdfast.selectors._everything import Everything
from holdfast.selectors._norm_sampling import NormSampling
from holdfast.selectors._selector import Selector, Tile, TileSelector
from holdfast.selectors._top_norm import TopNorm
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
    "selectors",
]

selectors: Registry[Selector] = Registry(
    "selector", [Cyclic, Everything, NormSampling, TopNorm, Uniform]
)
"""Every selector by its short name: `selectors.parse("norm-sampling(fraction=0.1)")`."""
