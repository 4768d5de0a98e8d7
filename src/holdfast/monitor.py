"""Who was rejected, over time: which rows of a training are suspect."""

import math
from collections.abc import Callable
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

# In twelve clean trainings with 4 and 8 ranks, of whose data the classes differ greatly or not at
# all, the largest change of a row beside its past had 7.8 standard errors.
CERTAIN = 8.0
"""Standard errors by which such a change must differ from zero."""

SHORTEST = -5.0
"""Log of the relative length of a row of zeros, and of all rows that are shorter."""

LIMITS = torch.tensor([[LONGER], [TURNED]], dtype=torch.float64)
"""What the two figures of a row must change by: its log length, and its cosine with the others."""


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

    A row is suspect if it was rejected in 10 of the last 20 steps, or if its gradients have changed
    in comparison with those of the other rows: they have become longer or shorter by a factor of
    1.25, or their cosine with the others has moved by 0.2. The mean of the last `window // 2` steps
    is compared with that of the steps before (the last `2 * window` of them, roughly), and must
    differ by 8 standard errors.

    The second test compares a row with its own past, because honest rows differ if their data do.
    It therefore finds a fault that begins while it watches, not one that was always there. While a
    row is suspect, the others are suspect by rejections only: what a bad row does to the model
    changes their gradients as well.

    Args:
        n: number of rows.
        window: number of steps; a change is seen after about half of it.
        on_suspect: called with a row that becomes suspect.

    Attributes:
        n_steps: number of steps observed.
        counts: [n] number of steps in which each row was rejected.
        ratios: [n] distances of the last step's rows from the vector median, in majority radii.

    Example:
        >>> monitor = Monitor(3)
        >>> for _ in range(10):
        ...     rows = torch.eye(3).index_fill(0, torch.tensor([2]), 1e6)
        ...     monitor.observe(rows @ rows.T, torch.tensor([False, False, True]))
        >>> monitor.suspects()
        [Suspect(row=2, reason='rejected in 10 of the last 10 steps')]
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
        self._products = torch.full((n, n), torch.nan, dtype=torch.float64)  # of the last step
        self._rejected = torch.zeros(RECENT, n, dtype=torch.bool)  # of the last steps, as a ring
        self._course = _Course(n, window)
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
        self._products = products.detach().to("cpu", torch.float64)
        self._course.add(_figures(self._products, rejected))
        self._rejected[self.n_steps % RECENT] = rejected
        self.counts = self.counts + rejected
        self.n_steps += 1
        before, self._suspects = self._suspects, self._found()
        for row, suspect in self._suspects.items():
            if row not in before and self._on_suspect is not None:
                self._on_suspect(suspect)

    @property
    def ratios(self) -> Tensor:
        """See the attributes of the class."""
        return _ratios(self._products)

    def suspects(self) -> list[Suspect]:
        """The rows that are suspect now."""
        return list(self._suspects.values())

    def _found(self) -> dict[int, Suspect]:
        n_recent = min(RECENT, self.n_steps)
        recent = self._rejected.sum(0).tolist()
        found = {
            row: Suspect(row, f"rejected in {recent[row]} of the last {n_recent} steps")
            for row in range(self.n)
            if recent[row] >= REJECTED
        }
        if found:
            return found
        for row in self._suspects:  # half of the certainty, so that a suspect does not come and go
            suspect = self._changed(row, certain=CERTAIN / 2)
            if suspect is not None:
                return {row: suspect}
        changes = self._course.changes(CERTAIN)
        if not bool(changes.any()):
            return {}
        # In units of their limits, so that the greatest change decides.
        most = (changes / LIMITS).abs().amax(0).argmax()
        suspect = self._changed(int(most), certain=CERTAIN)
        return {} if suspect is None else {suspect.row: suspect}

    def _changed(self, row: int, *, certain: float) -> Suspect | None:
        """The row as a suspect, if its gradients have changed."""
        longer, turned = self._course.changes(certain)[:, row].tolist()
        if longer != 0:
            factor = math.exp(longer)
            reason = f"gradients {factor:.2f} times as long as before, beside the other rows"
        elif turned != 0:
            reason = f"cosine with the other rows changed by {turned:+.2f}"
        else:
            return None
        return Suspect(row, reason)

    def state_dict(self) -> dict[str, Any]:
        """Everything that was observed, as tensors and numbers."""
        return {
            "n_steps": self.n_steps,
            "counts": self.counts.clone(),
            "rejected": self._rejected.clone(),
            "course": self._course.state_dict(),
            "suspects": {row: suspect.reason for row, suspect in self._suspects.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`; that of another number of rows or window is refused."""
        if not isinstance(state, dict) or set(state) != set(self.state_dict()):
            raise failure("state", "be a state of Monitor", type(state).__name__)
        n_steps, _, n = state["course"]["recent"].shape
        if (n_steps, n) != (self.window // 2, self.n):
            wanted = f"have {self.n} rows and half a window of {self.window // 2} steps"
            raise failure("state", wanted, (n, n_steps))
        self.n_steps = state["n_steps"]
        self.counts, self._rejected = state["counts"].clone(), state["rejected"].clone()
        self._course.load_state_dict(state["course"])
        self._suspects = {row: Suspect(row, why) for row, why in state["suspects"].items()}


class _Course:
    """The figures of every row over time: the recent steps, and mean and variance before them."""

    def __init__(self, n: int, window: int) -> None:
        self._horizon = 2.0 * window
        self._n_seen = 0
        self._recent = torch.full((window // 2, 2, n), torch.nan, dtype=torch.float64)  # a ring
        self._mean = torch.zeros(2, n, dtype=torch.float64)
        self._variance = torch.zeros(2, n, dtype=torch.float64)
        self._count = torch.zeros(2, n, dtype=torch.float64)

    def add(self, figures: Tensor) -> None:
        """Take in the figures [2, n] of one step, NaN where there is none."""
        at = self._n_seen % len(self._recent)
        oldest = self._recent[at].clone()
        has_one = ~oldest.isnan()
        # All past steps count equally at first, and a step counts less and less later.
        share = (1 / (self._count + 1)).clamp(min=1 / self._horizon) * has_one
        step = torch.where(has_one, oldest - self._mean, 0.0)
        self._variance = (1 - share) * (self._variance + share * step**2)
        self._mean = self._mean + share * step
        self._count = self._count + has_one
        self._recent[at] = figures
        self._n_seen += 1

    def changes(self, certain: float) -> Tensor:
        """[2, n] the changes of the recent means; 0 where they are small or may be chance."""
        n_recent = (~self._recent.isnan()).sum(0)
        recent = self._recent.nansum(0) / n_recent
        change = recent - self._mean
        are_large = change.abs() > LIMITS
        if not bool(are_large.any()):  # nearly always, and what follows takes as long as the rest
            return torch.zeros_like(change)
        spread = (self._recent - recent).square().nanmean(0)
        error = (spread / n_recent + self._variance / self._count.clamp(max=self._horizon)).sqrt()
        enough = (2 * n_recent >= len(self._recent)) & (self._count >= len(self._recent))
        return torch.where(enough & are_large & (change.abs() > certain * error), change, 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {
            "n_seen": self._n_seen,
            "recent": self._recent.clone(),
            "mean": self._mean,
            "variance": self._variance,
            "count": self._count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._n_seen, self._recent = state["n_seen"], state["recent"].clone()
        self._mean, self._variance, self._count = state["mean"], state["variance"], state["count"]


def _figures(products: Tensor, rejected: Tensor) -> Tensor:
    """[2, n] log of the relative length, and cosine with the others; NaN where there is none."""
    nothing = torch.full((2, len(products)), torch.nan, dtype=torch.float64)
    finite = torch.nonzero(torch.isfinite(products.diagonal()))[:, 0]
    if len(finite) < 2:
        return nothing
    among = products if len(finite) == len(products) else products[finite][:, finite]
    squares = among.diagonal().clamp(min=0)
    norms = squares.sqrt()
    usual = norms.median()
    if not bool(usual > 0):
        return nothing
    lengths = (norms / usual).log().clamp(SHORTEST, -SHORTEST)

    # The others are those that were not rejected, each with length 1: a wild row would hide behind
    # itself, and a long one would make the others look turned.
    weights = ~rejected[finite] / norms.clamp(min=float(usual) * math.exp(SHORTEST))
    with_all = among @ weights
    with_others = with_all - weights * squares
    # The square of the sum of the others is that of the whole sum without the row's own terms.
    square = weights @ with_all - weights * (with_all + with_others)
    cosines = (with_others / (norms * square.clamp(min=0).sqrt())).clamp(-1, 1)
    return nothing.index_copy(1, finite, torch.stack([lengths, cosines]))


def _ratios(products: Tensor) -> Tensor:
    """[n] distances of the rows from the vector median, in majority radii; NaN without a figure."""
    nothing = torch.full((len(products),), torch.nan, dtype=torch.float64)
    squares = products.diagonal()
    finite = torch.nonzero(torch.isfinite(squares))[:, 0]
    if len(finite) < 2 or not bool(squares[finite].median() > 0):
        return nothing
    distances = squared_distances(products[finite][:, finite]).sqrt()
    shares = torch.full((len(finite),), 1.0 / len(finite), dtype=torch.float64)
    radii = half_weight_radii(distances, shares)
    center = least(radii, distances @ shares)
    return nothing.index_copy(0, finite, distances[center] / radii[center])
