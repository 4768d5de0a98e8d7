"""Steps by name."""

import inspect
from collections.abc import Callable

import torch

from holdfast.aggregators import Aggregator, GeometricMedian, rules
from holdfast.memory import MeanMemory, RobustMemory, RowMemory, Units
from holdfast.registry import parse_call, unknown_name
from holdfast.robust_step._robust_step import RobustStep
from holdfast.selectors import NormSampling, Tile, TopNorm


def bgmd(
    *,
    fraction: float = 0.1,
    tile: Tile = None,
    units: Units = "parameter",
    aggregator: Aggregator | None = None,
    generator: torch.Generator | None = None,
) -> RobustStep:
    """Block coordinate geometric median descent, with a memory that keeps breakdown point 1/2.

    Args:
        fraction: the share of tiles, and so about of columns, that each step moves, in (0, 1].
        tile: columns that are chosen together; see :class:`~holdfast.selectors.NormSampling`.
        units: of the memory; "gradient" with momentum, Adam, or a learning rate that goes to zero.
        aggregator: the rule, if another than the geometric median.
        generator: source of random numbers, on the CPU; by default one with a fixed seed, so that every step object draws the same blocks.

    Example:
        >>> step = bgmd(fraction=0.25)
        >>> rows = torch.randn(9, 80, generator=torch.Generator().manual_seed(0))
        >>> rows[:4] *= -1e9
        >>> bool(step(rows, lr=0.1).direction.norm() < 10)
        True
    """
    rule = GeometricMedian() if aggregator is None else aggregator
    selector = NormSampling(fraction=fraction, tile=tile)
    return RobustStep(
        rule, selector=selector, memory=RobustMemory(units=units), generator=generator
    )


def bgmd_paper(
    *,
    fraction: float = 0.1,
    tile: Tile = 1,
    units: Units = "parameter",
    generator: torch.Generator | None = None,
) -> RobustStep:
    """The paper's Algorithm 1 to the letter: uncapped norm sampling, the block's own median, the mean of all rows as memory.

    One bad row can move its memory anywhere; it is here to compare with.
    """
    selector = NormSampling(fraction=fraction, tile=tile, capped=False)
    return RobustStep(
        GeometricMedian(), selector=selector, memory=MeanMemory(units=units), generator=generator
    )


def bgmd_published(
    *,
    fraction: float = 0.1,
    tile: Tile = 1,
    units: Units = "parameter",
    generator: torch.Generator | None = None,
) -> RobustStep:
    """What the experiments published with the paper ran: the largest columns, and a residual for each row."""
    selector = TopNorm(fraction=fraction, tile=tile, capped=False)
    return RobustStep(
        GeometricMedian(), selector=selector, memory=RowMemory(units=units), generator=generator
    )


presets: dict[str, Callable[..., RobustStep]] = {
    "bgmd": bgmd,
    "bgmd-paper": bgmd_paper,
    "bgmd-published": bgmd_published,
}
"""Every preset by its short name."""


def preset(text: str, *, generator: torch.Generator | None = None) -> RobustStep:
    """The step that a text such as `"bgmd(fraction=0.05, aggregator='krum(n_bad=2)')"` names.

    Example:
        >>> preset("bgmd-paper(fraction=0.05)").memory
        MeanMemory(units='parameter')
    """
    name, arguments = parse_call(text, "preset")
    if name not in presets:
        raise unknown_name("preset", presets, name)
    known = [key for key in inspect.signature(presets[name]).parameters if key != "generator"]
    for key in arguments:
        if key not in known:
            raise ValueError(f"`{name}` must be given {', '.join(known)}, got {key!r}.")
    if "aggregator" in arguments:
        arguments["aggregator"] = rules.parse(arguments["aggregator"])
    return presets[name](**arguments, generator=generator)
