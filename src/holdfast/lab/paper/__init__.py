"""The paper's experiments."""

from holdfast.lab.paper._plan import Plan, Recipe, Size, Variant
from holdfast.lab.paper._recipes import recipes
from holdfast.lab.paper._study import study_of
from holdfast.lab.paper._take import take_measurements

__all__ = ["Plan", "Recipe", "Size", "Variant", "recipes", "study_of", "take_measurements"]
