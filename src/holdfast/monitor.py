"""Who was rejected, over time: which rows of a training are suspect."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_mask, failure
from holdfast.geometry import half_weight_radii, least, squared_distances

RECENT = 20
"""Steps in which rejections count as a fault that goes on."""

REJECTED = 10
"""Rejections among the recent steps that make a row suspect."""

LONGER = math.log(1.25)
"""Change of a row's length, relative to the other rows', that may make it suspect."""

TURNED = 0.2
"""Change of a row's cosine with the other rows that may make it suspect."""

CERTAIN = 5.0
"""Standard errors by which such a change must differ from zero."""

SHORTEST = -5.0
"""Log of the relative length of a row of zeros, and of all rows that are shorter."""


@dataclass(frozen=True)
class Suspect:
    """A row that is probably faulty, and the figures that say so.

    Attributes:
        row: its number; the rank in a process group.
        reason: one sentence.
    """

    row: int
    reason: str


@final
class Monitor:
    """Watches rows that have the same owners at every step, such as the ranks of a process group.

    A row is suspect if it was rejected in 5 of the last 20 steps, or if its gradients have changed
    lately in comparison with those of the other rows: they have become longer or shorter by a
    factor of 1.25, or their cosine with the others has moved by 0.2. The last quarter of the
    `window` is compared with the rest of it, by medians, and must differ by 7 standard errors.

    The second test compares a row with its own past, because honest rows differ if their data do.
    It therefore finds a fault that begins while it watches, not one that was always there.

    Args:
        n: number of rows.
        window: number of steps that are compared.
        on_suspect: called with a row that becomes suspect.

    Attributes:
        n_steps: number of steps observed.
        counts: [n] number of steps in which each row was rejected.

    Example:
        >>> monitor = Monitor(3)
        >>> for _ in range(5):
        ...     rows = torch.eye(3).index_fill(0, torch.tensor([2]), 1e6)
        ...     monitor.observe(rows @ rows.T, torch.tensor([False, False, True]))
        >>> monitor.suspects()
        [Suspect(row=2, reason='rejected in 5 of the last 5 steps')]
    """

    def __init__(
        self, n: int, *, window: int = 200, on_suspect: Callable[[Suspect], None] | None = None
    ) -> None:
        check_count("n", n, at_least=1)
        check_count("window", window, at_least=RECENT)
        if on_suspect is not None and not callable(on_suspect):
            raise failure("on_suspect", "be a function of a Suspect", type(on_suspect).__name__)
        self.n, self.window, self._on_suspect = n, window, on_suspect
        self.n_steps = 0
        self.counts = torch.zeros(n, dtype=torch.int64)
        # The last `window` steps, as a ring; NaN where a figure has no value.
        self._rejected = torch.zeros(window, n, dtype=torch.bool)
        self._lengths = torch.full((window, n), torch.nan, dtype=torch.float64)
        self._cosines = torch.full((window, n), torch.nan, dtype=torch.float64)
        self._ratios = torch.full((window, n), torch.nan, dtype=torch.float64)
        self._suspects: dict[int, Suspect] = {}

    def observe(self, products: Tensor, rejected: Tensor) -> None:
        """Take in one step.

        Args:
            products: [n, n] inner products of the rows; NaN in rows that are not finite.
            rejected: bool [n], the rows that were left out.
        """
        if products.shape != (self.n, self.n):
            raise failure("products", f"have shape {(self.n, self.n)}", tuple(products.shape))
        check_mask(rejected, self.n)
        at = self.n_steps % self.window
        self._rejected[at] = rejected
        self._lengths[at], self._cosines[at], self._ratios[at] = _figures(
            products.detach().to("cpu", torch.float64), rejected
        )
        self.counts += rejected
        self.n_steps += 1
        found = {suspect.row: suspect for suspect in self._found()}
        new = [suspect for row, suspect in found.items() if row not in self._suspects]
        self._suspects = found
        for suspect in new if self._on_suspect is not None else ():
            assert self._on_suspect is not None
            self._on_suspect(suspect)

    def suspects(self) -> list[Suspect]:
        """The rows that are suspect now."""
        return list(self._suspects.values())

    @property
    def ratios(self) -> Tensor:
        """[n] distances of the last step's rows from the vector median, in majority radii."""
        return self._ratios[(self.n_steps - 1) % self.window].clone()

    def rates(self) -> Tensor:
        """[n] share of the steps in the window in which each row was rejected."""
        n_seen = min(self.n_steps, self.window)
        return self._rejected[:n_seen].double().mean(0) if n_seen else torch.zeros(self.n).double()

    def _found(self) -> Sequence[Suspect]:
        n_recent = min(RECENT, self.n_steps)
        recent = self._ordered(self._rejected)[-n_recent:].sum(0)
        found = []
        longer, turned = self._change(self._lengths), self._change(self._cosines)
        for row in range(self.n):
            n_rejected = int(recent[row])
            if n_rejected >= REJECTED:
                reason = f"rejected in {n_rejected} of the last {n_recent} steps"
            elif abs(longer[row]) > LONGER:
                factor = math.exp(longer[row])
                reason = f"gradients {factor:.2f} times as long as before, beside the other rows"
            elif abs(turned[row]) > TURNED:
                reason = f"cosine with the other rows changed by {turned[row]:+.2f}"
            else:
                continue
            found.append(Suspect(row, reason))
        return found

    def _ordered(self, ring: Tensor) -> Tensor:
        """The steps of the ring, oldest first."""
        if self.n_steps <= self.window:
            return ring[: self.n_steps]
        return ring.roll(-(self.n_steps % self.window), 0)

    def _change(self, ring: Tensor) -> list[float]:
        """By how much the figures of each row have changed lately; 0 where that may be chance."""
        n_recent = self.window // 4
        steps = self._ordered(ring)
        if len(steps) < 2 * n_recent:
            return [0.0] * self.n
        changes = []
        for figures in steps.T:
            before, now = figures[:-n_recent], figures[-n_recent:]
            before, now = before[~before.isnan()], now[~now.isnan()]
            if 2 * min(len(before), len(now)) < n_recent:
                changes.append(0.0)
                continue
            change = float(now.median() - before.median())
            error = math.hypot(_median_error(before), _median_error(now))
            changes.append(change if abs(change) > CERTAIN * error else 0.0)
        return changes

    def state_dict(self) -> dict[str, Any]:
        """Everything that was observed, as tensors and numbers."""
        return {
            "n_steps": self.n_steps,
            "counts": self.counts.clone(),
            "rejected": self._rejected.clone(),
            "lengths": self._lengths.clone(),
            "cosines": self._cosines.clone(),
            "ratios": self._ratios.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`; that of another number of rows or window is refused."""
        if not isinstance(state, dict) or set(state) != set(self.state_dict()):
            raise failure("state", "be a state of Monitor", type(state).__name__)
        if state["rejected"].shape != self._rejected.shape:
            wanted = f"have a window of {self.window} steps and {self.n} rows"
            raise failure("state", wanted, tuple(state["rejected"].shape))
        self.n_steps = state["n_steps"]
        self.counts = state["counts"].clone()
        self._rejected = state["rejected"].clone()
        self._lengths = state["lengths"].clone()
        self._cosines = state["cosines"].clone()
        self._ratios = state["ratios"].clone()
        self._suspects = {suspect.row: suspect for suspect in self._found()}


def _figures(products: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[n] each: log of the relative length, cosine with the others, distance in majority radii."""
    n = len(products)
    nothing = torch.full((n,), torch.nan, dtype=torch.float64)
    squares = products.diagonal()
    finite = torch.nonzero(torch.isfinite(squares) & (squares > 0))[:, 0]
    if len(finite) < 2:
        return nothing, nothing, nothing
    among = products[finite][:, finite]
    norms = among.diagonal().sqrt()
    lengths = nothing.index_put((finite,), (norms / norms.median()).log())

    # The others are those that were not rejected: a wild row would hide behind itself.
    used = (~rejected[finite]).double()
    weights = used.expand(len(finite), -1) * (1 - torch.eye(len(finite), dtype=torch.float64))
    image = weights @ among
    others = (image * weights).sum(1).clamp(min=0).sqrt()
    cosines = nothing.index_put((finite,), image.diagonal() / (norms * others))

    distances = squared_distances(among).sqrt()
    shares = torch.full((len(finite),), 1.0 / len(finite), dtype=torch.float64)
    radii = half_weight_radii(distances, shares)
    center = least(radii, distances @ shares)
    ratios = nothing.index_put((finite,), distances[center] / radii[center])
    return lengths, cosines, ratios


def _median_error(figures: Tensor) -> float:
    """The standard error of a median, by the median absolute deviation."""
    deviation = float((figures - figures.median()).abs().median())
    # 1.4826 makes it the standard deviation of a normal law, 1.2533 the error of its median.
    return 1.4826 * 1.2533 * deviation / math.sqrt(len(figures))
