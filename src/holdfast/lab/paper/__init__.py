"""The paper's experiments; :mod:`holdfast.lab.paper.drawing` shows their results."""

from holdfast.lab.paper._plan import Plan, Recipe, Size, Variant
from holdfast.lab.paper._recipes import recipes, study_of
from holdfast.lab.paper._take import take_measurements

__all__ = ["Plan", "Recipe", "Size", "Variant", "recipes", "study_of", "take_measurements"]
