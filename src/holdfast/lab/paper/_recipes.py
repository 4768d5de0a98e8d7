"""All recipes."""

from holdfast.lab.paper._block_size import BLOCK_SIZES
from holdfast.lab.paper._measured import MEASURED, TABLE_1
from holdfast.lab.paper._plan import Recipe
from holdfast.lab.paper._tables import TABLES
from holdfast.lab.paper._wall_clock import FIGURES

recipes: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (TABLE_1, *TABLES, *FIGURES, *BLOCK_SIZES, *MEASURED)
}
"""Every recipe by its name, in the order of a report."""
