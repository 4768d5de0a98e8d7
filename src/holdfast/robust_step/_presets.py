"""Steps by name."""

import inspect
from collections.abc import Callable

import torch

from holdfast.aggregators import Aggregator, GeometricMedian, Sketched
from holdfast.registry import parse_call, unknown_argument, unknown_name
from holdfast.robust_step._mean_memory import MeanMemory
from holdfast.robust_step._robust_step import RobustStep, Units
from holdfast.robust_step._row_memory import RowMemory
from holdfast.robust_step._select_first_step import SelectFirstStep
from holdfast.robust_step._step import Step
from holdfast.selectors import NormSampling, Tile, TopNorm


def bgmd(
    *,
    fraction: float = 0.1,
    tile: Tile = 1,
    units: Units = "parameter",
    rule: Aggregator | str | None = None,
    generator: torch.Generator | None = None,
) -> RobustStep:
    """Block coordinate geometric median descent: aggregate the rows, then deliver a block.

    Args:
        fraction: the share of columns that each step moves, in (0, 1].
        tile: columns that are moved together; single columns by default.
        units: units of the memory, for a step without `RobustOptimizer`; use "gradient" with
            momentum or Adam. `RobustOptimizer` delivers after the optimizer and needs no units.
        rule: the rule or its name; by default the geometric median of a sketch.
        generator: source of random numbers, on the CPU; by default one with a fixed seed.

    Example:
        >>> step = bgmd(fraction=0.25)
        >>> rows = torch.randn(9, 80, generator=torch.Generator().manual_seed(0))
        >>> rows[:4] *= -1e9
        >>> bool(step(rows, lr=0.1).direction.norm() < 10)
        True
    """
    if rule is None:
        rule = Sketched(rule=GeometricMedian())
    selector = TopNorm(fraction=fraction, tile=tile)
    return RobustStep(rule, selector=selector, units=units, generator=generator)


def bgmd_paper(
    *,
    fraction: float = 0.1,
    tile: Tile = 1,
    units: Units = "parameter",
    generator: torch.Generator | None = None,
) -> SelectFirstStep:
    """The paper's Algorithm 1: norm sampling, the block's own median, the mean as memory.

    For comparisons only: one bad row can move its memory anywhere.
    """
    selector = NormSampling(fraction=fraction, tile=tile, capped=False)
    memory = MeanMemory(units=units)
    return SelectFirstStep(GeometricMedian(), selector=selector, memory=memory, generator=generator)


def bgmd_published(
    *,
    fraction: float = 0.1,
    tile: Tile = 1,
    units: Units = "parameter",
    generator: torch.Generator | None = None,
) -> SelectFirstStep:
    """The step of the experiments published with the paper: top-k columns, a memory per row."""
    selector, memory = TopNorm(fraction=fraction, tile=tile, capped=False), RowMemory(units=units)
    return SelectFirstStep(GeometricMedian(), selector=selector, memory=memory, generator=generator)


presets: dict[str, Callable[..., Step]] = {
    "bgmd": bgmd,
    "bgmd-paper": bgmd_paper,
    "bgmd-published": bgmd_published,
}
"""Every preset by its short name."""


def preset(text: str, *, generator: torch.Generator | None = None) -> Step:
    """The step for a text such as `"bgmd(fraction=0.05, rule='krum(n_bad=2)')"`.

    Example:
        >>> preset("bgmd-paper(fraction=0.05)").selector
        NormSampling(fraction=0.05, count=None, tile=1, capped=False)
    """
    name, arguments = parse_call(text, "preset")
    if name not in presets:
        raise unknown_name("preset", presets, name)
    known = [key for key in inspect.signature(presets[name]).parameters if key != "generator"]
    for key in arguments:
        if key not in known:
            raise unknown_argument(name, known, key)
    return presets[name](**arguments, generator=generator)
