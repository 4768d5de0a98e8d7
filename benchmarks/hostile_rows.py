"""What rules that several libraries have make of rows that are hostile to arithmetic.

Prints the table of docs/comparison.md. The peers must be installed (`make bench` does it). From the
project's root:

    python -m benchmarks.hostile_rows
"""

import importlib
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import peers
from holdfast.aggregators import rules

N, D, N_BAD = 15, 1000, 3

Rule = Callable[[Tensor], Tensor]


def bad_rows(rows: Tensor, value: float) -> Tensor:
    """The rows with the same value in all of the first N_BAD."""
    return torch.cat([torch.full_like(rows[:N_BAD], value), rows[N_BAD:]])


def flipped(rows: Tensor) -> Tensor:
    """The rows with the first N_BAD times -100."""
    return torch.cat([-100 * rows[:N_BAD], rows[N_BAD:]])


def displaced(rows: Tensor) -> Tensor:
    """The rows with the first N_BAD at three times the spread of the others."""
    return torch.cat([rows[:N_BAD] + 3.0, rows[N_BAD:]])


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN": lambda rows: bad_rows(rows, float("nan")),
    "1e30": lambda rows: bad_rows(rows, 1e30),
    "all rows x 1e-6, bad ones x -100": lambda rows: flipped(1e-6 * rows),
    "all rows + 1e5, bad ones displaced": lambda rows: displaced(rows) + 1e5,
}
"""What becomes of honest rows around (1, ..., 1)."""


def ours() -> dict[str, Rule]:
    """Holdfast's rules by name; all are told the number of bad rows if they ask."""
    found: dict[str, Rule] = {
        name: rules.parse(name) for name in ("coordinate-median", "geometric-median")
    }
    for name in ("trimmed-mean", "krum", "minimum-diameter", "covariance-filter"):
        found[name] = rules.parse(f"{name}(n_bad={N_BAD})")
    return found


def libraries() -> dict[str, dict[str, Rule]]:
    """For each rule its versions, by library."""
    byzfl = peers.byzfl("aggregators")
    theirs = [byzfl.Median(), byzfl.GeometricMedian(), byzfl.TrMean(f=N_BAD)]
    theirs += [byzfl.Krum(f=N_BAD), byzfl.MDA(f=N_BAD), byzfl.CAF(f=N_BAD)]
    others = [
        byzpy("coordinate_wise.median", "CoordinateWiseMedian"),
        byzpy("geometric_wise.geometric_median", "GeometricMedian"),
        byzpy("coordinate_wise.trimmed_mean", "CoordinateWiseTrimmedMean", f=N_BAD),
        byzpy("geometric_wise.krum", "Krum", f=N_BAD),
        byzpy("geometric_wise.minimum_diameter_average", "MinimumDiameterAveraging", f=N_BAD),
        byzpy("norm_wise.caf", "CAF", f=N_BAD),
    ]
    versions = zip(ours().items(), theirs, others, strict=True)
    return {
        name: {"holdfast": own, "byzfl": second, "byzpy": third}
        for (name, own), second, third in versions
    }


def byzpy(module: str, name: str, **options: int) -> Rule:
    """A rule of ByzPy, as a function of the matrix of rows."""
    rule = getattr(importlib.import_module(f"byzpy.aggregators.{module}"), name)(**options)
    return lambda rows: rule.aggregate(list(rows))


def distance(rule: Rule, change: Callable[[Tensor], Tensor]) -> str:
    """How far the result is from the honest mean, in mean distances of an honest row from it."""
    honest = 1 + torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    rows = change(honest)
    good = rows[N_BAD:].double()
    spread = (good - good.mean(0)).norm(dim=1).mean()
    result: Tensor | None = rule(rows)
    if result is None:  # a peer that returns nothing
        return "None"
    found = float((result.double() - good.mean(0)).norm() / spread)
    return f"{found:.2g}" if found == found else "NaN"


def main() -> None:
    """Print the table as Markdown."""
    torch.manual_seed(0)  # for peers that draw from it
    print(f"| rule | library | {' | '.join(CASES)} |\n| --- | --- |{' --- |' * len(CASES)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows in peers
        for name, versions in libraries().items():
            for library, rule in versions.items():
                cells = [distance(rule, change) for change in CASES.values()]
                print(f"| {name} | {library} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
