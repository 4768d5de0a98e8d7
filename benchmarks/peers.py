"""The rules of other libraries, for comparison. `make bench` installs them, the package does
not.
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from torch import Tensor


def byzfl(module: str) -> Any:
    """`byzfl.aggregators.<module>` without the package's `__init__`, which needs torchvision and
    data.
    """
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        assert spec is not None, "byzfl must be installed (make bench does it)"
        assert spec.submodule_search_locations is not None
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["byzfl"] = package
    return importlib.import_module(f"byzfl.aggregators.{module}")


def geom_median() -> Callable[[Tensor], Tensor]:
    """PyPI's geom-median at its own default accuracy."""
    compute = importlib.import_module("geom_median.torch").compute_geometric_median
    return lambda rows: compute(list(rows)).median


def byzpy_median() -> Callable[[Tensor], Tensor]:
    """ByzPy's geometric median at its own default accuracy."""
    module = importlib.import_module("byzpy.aggregators.geometric_wise.geometric_median")
    median = module.GeometricMedian()
    return lambda rows: median.aggregate(list(rows))
