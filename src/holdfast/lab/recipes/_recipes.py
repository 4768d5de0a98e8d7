"""All recipes."""

from holdfast.lab.recipes._block_size import BLOCK_SIZES
from holdfast.lab.recipes._measured import MEASURED, TABLE_1
from holdfast.lab.recipes._plan import Recipe
from holdfast.lab.recipes._tables import TABLES
from holdfast.lab.recipes._wall_clock import FIGURES

recipes: dict[str, Recipe] = {recipe.name: recipe for recipe in (TABLE_1, *TABLES, *FIGURES, *BLOCK_SIZES, *MEASURED)}
"""Every recipe by its name, in the order of a report."""
