"""A custom rule: each row is weighted by its agreement with the others, in one short class.

python examples/own_aggregator.py
"""

from dataclasses import dataclass
from typing import final

import torch

from holdfast import bgmd
from holdfast.aggregators import CallContext, GramAggregator, Mean
from holdfast.geometry import Gram, Solution
from holdfast.seeds import stream


@final
@dataclass(frozen=True, kw_only=True)
class Agreement(GramAggregator):
    """Weights proportional to the median cosine of each row with the others, zero if negative."""

    name = "agreement"

    @property
    def n_needed(self) -> int:
        return 3

    def _n_resisted(self, n: int) -> int:
        return 0  # no guarantee is proved

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        products = gram.about_origin[: gram.n, : gram.n]
        cosines = products / torch.outer(gram.norms, gram.norms).clamp(min=1e-300)
        scores = cosines.median(1).values.clamp(min=0) / gram.norms.clamp(min=1e-300)
        return Solution(scores / scores.sum().clamp(min=1e-300))


def main() -> tuple[float, float]:
    """Print and return the cosines of the mean and of this rule with the true gradient.

    A third of the rows is reversed and a million times too long.
    """
    truth = torch.randn(5000, generator=stream(0, "truth"))
    rows = truth + torch.randn(30, 5000, generator=stream(0, "rows"))
    rows[:10] *= -1e6
    direction = torch.nn.functional.normalize(truth, dim=0)
    found = []
    for rule in (Mean(), Agreement()):
        aggregate = rule(rows)
        cosine = float(torch.nn.functional.normalize(aggregate, dim=0) @ direction)
        found.append(cosine)
        print(f"{rule!r}: cosine with the truth {cosine:+.3f}")
    step = bgmd(fraction=0.5, rule=Agreement())  # it also works in a block step
    rejected = torch.nonzero(step(rows, lr=0.1).rejected).flatten().tolist()
    print(f"a block step with this rule rejected rows {rejected}")
    return found[0], found[1]


if __name__ == "__main__":
    main()
