"""Storage of rows, their inner products and distances, order statistics, and solvers."""

from holdfast.geometry._central import (
    FAR,
    half_weight_radii,
    half_weight_radius,
    least,
    least_of_each,
    most_central,
    squared_hull_distances,
)
from holdfast.geometry._dense_rows import DenseRows
from holdfast.geometry._geometric_median import geometric_median
from holdfast.geometry._geometric_medians import geometric_medians
from holdfast.geometry._gram import (
    CleanLengths,
    Gram,
    Lengths,
    distances_from,
    length,
    squared_distances,
)
from holdfast.geometry._gram_rows import GramRows
from holdfast.geometry._holders import ALONE, Holders
from holdfast.geometry._implicit_gradient import attach_gradient
from holdfast.geometry._kernels import full_precision, products_between, working_dtype
from holdfast.geometry._measure import measure
from holdfast.geometry._mixed_rows import MixedColumnRows, MixedRows, Mixture, mixed_rows
from holdfast.geometry._order_statistics import median, median_of_rows, order_statistics
from holdfast.geometry._principal_scores import PrincipalScores
from holdfast.geometry._row_sets import RowSets
from holdfast.geometry._rows import ColumnRows, Rows, by_column
from holdfast.geometry._sketch import Sketch, columns_per_sampled, pays_to_stream
from holdfast.geometry._sketched_rows import SketchedRows
from holdfast.geometry._solution import Outcome, Solution, Solutions
from holdfast.geometry._streaming_median import streaming_geometric_median
from holdfast.geometry._tiling import Block, Piece, Tiling

__all__ = [
    "ALONE",
    "FAR",
    "Block",
    "CleanLengths",
    "ColumnRows",
    "DenseRows",
    "Gram",
    "GramRows",
    "Holders",
    "Lengths",
    "MixedColumnRows",
    "MixedRows",
    "Mixture",
    "Outcome",
    "Piece",
    "PrincipalScores",
    "RowSets",
    "Rows",
    "Sketch",
    "SketchedRows",
    "Solution",
    "Solutions",
    "Tiling",
    "attach_gradient",
    "by_column",
    "columns_per_sampled",
    "distances_from",
    "full_precision",
    "geometric_median",
    "geometric_medians",
    "half_weight_radii",
    "half_weight_radius",
    "least",
    "least_of_each",
    "length",
    "measure",
    "median",
    "median_of_rows",
    "mixed_rows",
    "most_central",
    "order_statistics",
    "pays_to_stream",
    "products_between",
    "squared_distances",
    "squared_hull_distances",
    "streaming_geometric_median",
    "working_dtype",
]
