"""The paper's experiments."""

from holdfast.lab.recipes._plan import Plan, Recipe, Size, Variant
from holdfast.lab.recipes._recipes import recipes
from holdfast.lab.recipes._study import study_of

__all__ = ["Plan", "Recipe", "Size", "Variant", "recipes", "study_of"]
