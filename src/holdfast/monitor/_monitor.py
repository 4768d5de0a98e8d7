"""Rows that are suspect over the course of a training."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_mask, check_state, failure
from holdfast.geometry import half_weight_radii, least, squared_distances
from holdfast.monitor._course import LIMITS, Course, figures, widened

RECENT = 20
"""Number of recent steps in which rejections are counted."""

REJECTED = 10
"""Rejections among the recent steps that make a row suspect."""

# In twelve clean trainings with 4 and 8 ranks, of whose data the classes differ greatly or not at
# all, the largest change of a row beside its past had 7.8 standard errors.
CERTAIN = 8.0
"""Standard errors by which such a change must differ from zero."""

LITTLE = 0.25
"""Share of the median weight below which a row counts as left out."""


@dataclass(frozen=True)
class Suspect:
    """A row that is probably faulty, with the reason.

    Attributes:
        row: its number; the rank in a process group.
        reason: one sentence.
    """

    row: int
    reason: str


@final
class Monitor:
    """Finds suspect rows among rows with fixed owners, such as the ranks of a process group.

    A row is suspect if it was rejected in 10 of the last 20 steps, or if its gradients changed
    relative to those of the other rows: they became longer or shorter by a factor of 1.25, or their
    cosine with the others changed by 0.2. The mean of the last `window // 2` steps is compared with
    that of the steps before (the last `2 * window` of them, roughly), and must differ by 8 standard
    errors. For a row that does not take part in every step, such as a client of a federation, only
    the steps in which it did count.

    The second test compares a row with its own past, because honest rows differ if their data do.
    It therefore finds faults that begin during the observation, not faults that were always there.
    While a row is suspect, other rows can become suspect only by rejections: a bad row changes the
    model and thereby their gradients as well.

    Args:
        n: number of rows.
        window: number of steps; a change is detected after about half of it.
        on_suspect: called with a row that becomes suspect.

    Attributes:
        n_steps: number of steps observed.
        counts: [n] number of steps in which each row was rejected.
        ratios: distances of the last step's rows from the vector median, in majority radii; NaN for
            rows that have none.

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
        self._n_taken = torch.zeros(n, dtype=torch.int64)  # steps in which each row took part
        self._rejected = torch.zeros(RECENT, n, dtype=torch.bool)  # of these the last, as a ring
        self._course = Course(n, window)
        self._suspects: dict[int, Suspect] = {}

    def grow(self, n: int) -> None:
        """Observe n rows from now on: the previous ones, followed by new ones."""
        check_count("n", n, at_least=self.n)
        self.counts = widened(self.counts, n, 0)
        self._n_taken = widened(self._n_taken, n, 0)
        self._rejected = widened(self._rejected, n, False)
        self._course.grow(n)
        self.n = n

    def observe(
        self, products: Tensor | None, rejected: Tensor, *, rows: Sequence[int] | None = None
    ) -> None:
        """Take in one step.

        Args:
            products: [k, k] inner products of the rows; NaN in rows that are not finite. None if
                they cannot be compared from step to step, as those of different blocks.
            rejected: bool [k], the rows that were left out.
            rows: the numbers of the k rows that took part, each once; all n by default.
        """
        at = torch.arange(self.n) if rows is None else self._checked(rows)
        if products is None:
            products = torch.full((len(at), len(at)), torch.nan, dtype=torch.float64)
        elif products.shape != (len(at), len(at)):
            raise failure("products", f"have shape {(len(at), len(at))}", tuple(products.shape))
        check_mask(rejected, len(at))
        self._products = products.detach().to("cpu", torch.float64)
        self._course.add(figures(self._products, rejected), at)
        self._rejected[self._n_taken[at] % RECENT, at] = rejected
        self._n_taken[at] += 1
        self.counts = self.counts.index_add(0, at, rejected.long())
        self.n_steps += 1
        before, self._suspects = self._suspects, self._found()
        for row, suspect in self._suspects.items():
            if row not in before and self._on_suspect is not None:
                self._on_suspect(suspect)

    def _checked(self, rows: Sequence[int]) -> Tensor:
        """The numbers of rows that took part in a step."""
        at = torch.tensor(rows, dtype=torch.int64)
        if len(set(rows)) < len(rows) or not all(0 <= row < self.n for row in rows):
            raise failure("rows", f"be different numbers below {self.n}", list(rows))
        return at

    @property
    def ratios(self) -> Tensor:
        """See the attributes of the class."""
        products = self._products
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

    def suspects(self) -> list[Suspect]:
        """The rows that are suspect now."""
        return list(self._suspects.values())

    def _found(self) -> dict[int, Suspect]:
        recent = self._rejected.sum(0)
        found = {
            row: Suspect(
                row,
                f"rejected in {int(recent[row])} of the last "
                f"{min(RECENT, int(self._n_taken[row]))} steps",
            )
            for row in torch.nonzero(recent >= REJECTED)[:, 0].tolist()
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
            reason = f"gradients {factor:.2f} times as long as before, relative to the others"
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
            "n_taken": self._n_taken.clone(),
            "rejected": self._rejected.clone(),
            "course": self._course.state_dict(),
            "suspects": {row: suspect.reason for row, suspect in self._suspects.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`, which must have the same number of rows and the same window."""
        check_state(state, self)
        n_steps, _, n = state["course"]["recent"].shape
        if (n_steps, n) != (self.window // 2, self.n):
            wanted = f"have {self.n} rows and half a window of {self.window // 2} steps"
            raise failure("state", wanted, (n, n_steps))
        self.n_steps = state["n_steps"]
        self.counts, self._rejected = state["counts"].clone(), state["rejected"].clone()
        self._n_taken = state["n_taken"].clone()
        self._course.load_state_dict(state["course"])
        self._suspects = {row: Suspect(row, why) for row, why in state["suspects"].items()}


def have_little_weight(weights: Tensor) -> Tensor:
    """Whether (bool [n]) rows have less than a quarter of the median weight.

    For rules that give every row some weight, such as the geometric median, which weights rows in
    inverse proportion to their distances.

    Example:
        >>> have_little_weight(torch.tensor([0.4, 0.3, 0.25, 0.05]))
        tensor([False, False, False,  True])
    """
    return weights < LITTLE * weights.median()
