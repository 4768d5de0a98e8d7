import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from holdfast.aggregators import Blockwise
from holdfast.checks import failure
from holdfast.geometry import Tiling, length, working_dtype

T = TypeVar("T")

State = Tensor | None
"""The state of attackers between two steps."""

Rule = Callable[..., Tensor]
"""From rows [n, d] to the direction [d]: an `Aggregator`, or any function."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackContext:
    """The knowledge of the attackers at one step.

    An attack is a function of this object, so it never calls a model: vectors that only a trainer
    can compute, such as the gradient of a large batch, are passed as `directions`.

    `honest` and everything computed from it is divided by `unit`, a power of two near the largest
    entry: squares do not overflow in any dtype, and the scaling is exact.

    Attributes:
        rows: [n, d] the rows that all workers would send if none were bad (after momentum, memory
            and block), in the dtype in which rows are sent.
        mask: bool [n], True where a row is bad.
        generator: the attackers' source of random numbers.
        state: the attackers' state after the previous step; None at the first.
        rule: the rule that will be applied to the rows.
        rule_arguments: the keyword arguments of the rule, such as `reference`.
        memory: [d] the vector that the step will add to every row before the rule.
        directions: vectors [d] by name, of any length.
        sections: numbers of adjacent columns that belong to one parameter each, for rules that
            treat each tile of columns separately; all columns are one parameter by default.
        step: number of the step, from 0.
    """

    rows: Tensor
    mask: Tensor
    generator: Generator | None = None
    state: State = None
    rule: Rule | None = None
    rule_arguments: Mapping[str, Any] = field(default_factory=dict)
    memory: Tensor | None = None
    directions: Mapping[str, Tensor] = field(default_factory=dict)
    sections: Sequence[int] | None = None
    step: int = 0
    _found: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def n_bad(self) -> int:
        """Number of bad rows."""
        return int(self.mask.sum())

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.rows.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype for computing: float32, or float64 for rows of float64."""
        return working_dtype(self.rows.dtype)

    @property
    def own(self) -> Tensor:
        """[n_bad, d] copy of the bad rows before the attack, in the dtype of the rows."""
        return self.rows[self.mask]

    @cached_property
    def tiling(self) -> Tiling | None:
        """The tiles of a rule that treats each on its own; None for other rules.

        None also if the rule draws random numbers: weights in one tile then depend on the others.
        """
        if not isinstance(self.rule, Blockwise) or self.rule.needs:
            return None
        sections = (self.d,) if self.sections is None else tuple(self.sections)
        tile = self.rule.tile
        return self.rule.tiling(_joined(sections, tile) if isinstance(tile, int) else sections)

    def per_column(self, values: Tensor) -> Tensor:
        """The values [n_tiles] of each tile, repeated for each of its columns [d].

        Without tiles there is one value [1], which is returned.
        """
        values = values.to(self.rows.device)
        if self.tiling is None:
            return values
        return self.tiling.expand(values, torch.arange(len(values), device=values.device))

    def tile_norms(self, vector: Tensor) -> Tensor:
        """[n_tiles] norms of the vector [d] in every tile; without tiles, its norm [1]."""
        if self.tiling is None:
            norm: Tensor = torch.linalg.vector_norm(vector)
            return norm[None]
        return self.tiling.norms(vector)

    @cached_property
    def unit(self) -> float:
        """A power of two, at most the largest finite entry of the honest rows; 1 if all are 0."""
        entries = self.rows[~self.mask].abs()
        largest = float(entries.where(entries.isfinite(), 0.0).max())
        smallest = torch.finfo(self.dtype).tiny
        return max(smallest, math.ldexp(1.0, math.frexp(largest)[1] - 1)) if largest > 0 else 1.0

    @cached_property
    def honest(self) -> Tensor:
        """[n_honest, d] honest rows divided by `unit`, in `dtype`."""
        return self.rows[~self.mask].to(self.dtype) / self.unit

    @cached_property
    def mean(self) -> Tensor:
        """[d] mean of `honest`."""
        return self.honest.mean(0)

    @cached_property
    def deviations(self) -> Tensor:
        """[n_honest, d] the differences of `honest` from `mean`."""
        return self.honest - self.mean

    @cached_property
    def spread(self) -> Tensor:
        """[d] standard deviation (over n - 1) of `honest` per column; zero for a single row."""
        return self.honest.std(0) if len(self.honest) > 1 else torch.zeros_like(self.mean)

    def direction(self, name: str) -> Tensor:
        """[d] the direction of this name, scaled to length 1; a zero vector stays zero."""
        vector = self.directions[name].detach().to(self.rows.device, self.dtype)
        size = length(vector)
        return vector / size if size > 0 else vector

    def mask_of_columns(self, name: str) -> Tensor:
        """[d] the direction of this name without scaling: 1 on the marked columns, 0 on others."""
        return self.directions[name].detach().to(self.rows.device, self.dtype)

    def once(self, function: Callable[["AttackContext"], T]) -> T:
        """The result of `function(self)`, computed at the first call only.

        For what both `_bad_rows` and `_learn` of an attack use, such as the result of a search.
        """
        if function not in self._found:
            self._found[function] = function(self)
        found: T = self._found[function]
        return found

    def normal(self) -> Tensor:
        """[n_bad, d] independent standard normal numbers."""
        return standard_normal((self.n_bad, self.d), self.generator, self.rows)

    def check_state(self, *shape: int) -> None:
        """Refuse a state that is not a floating tensor of this shape; None is accepted."""
        if self.state is None:
            return
        if not isinstance(self.state, Tensor) or not self.state.is_floating_point():
            got = getattr(self.state, "dtype", type(self.state).__name__)
            raise failure("state", "be a floating tensor", got)
        if self.state.shape != shape:
            raise failure("state", f"have shape {shape}", tuple(self.state.shape))


def _joined(sections: tuple[int, ...], tile: int) -> tuple[int, ...]:
    """Sections with the same tiles, but fewer: runs of equally wide tiles are read faster."""
    joined = [0]
    for size in sections:
        if joined[-1] % tile == 0:
            joined[-1] += size
        else:
            joined.append(size)
    return tuple(joined)


def of_length_one(vector: Tensor) -> Tensor:
    """The vector scaled to length 1; a zero vector is returned unchanged."""
    size = float(torch.linalg.vector_norm(vector))
    return vector / size if size > 0 else vector


def standard_normal(shape: tuple[int, ...], generator: Generator | None, like: Tensor) -> Tensor:
    """Independent standard normal numbers in the working dtype of `like`, on its device."""
    assert generator is not None
    dtype = working_dtype(like.dtype)
    drawn = torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)
    return drawn.to(like.device)


def uniform(shape: tuple[int, ...], generator: Generator | None, like: Tensor) -> Tensor:
    """Independent numbers, uniform in [0, 1), on the device of `like`."""
    assert generator is not None
    return torch.rand(shape, generator=generator, device=generator.device).to(like.device)
