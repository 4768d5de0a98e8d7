from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, final

from torch import Tensor

from holdfast.checks import check_nonnegative, failure
from holdfast.threats._attack import NOTHING, RULE, Attack, attacks
from holdfast.threats._attack_context import AttackContext
from holdfast.threats._rule_trials import most_harmful_factor


@final
@attacks.register
@dataclass(frozen=True, kw_only=True)
class LittleIsEnough(Attack):
    r"""A small shift from the honest mean, in every column.

    All bad rows send :math:`\mu - z \sigma`, where :math:`\mu_j` and :math:`\sigma_j` are mean and
    standard deviation (over n - 1) of the honest rows in column j. By default, with m of n rows
    bad, z is the largest that should pass unnoticed:
    :math:`z = \Phi^{-1}\left(\frac{n - m - s}{n - m}\right)`,
    :math:`s = \lfloor n/2 + 1 \rfloor - m`, where :math:`\Phi` is the standard normal distribution
    function. It is negative where very few rows are bad (-0.43 for one of four). If bad rows have a
    majority, s = 1. If there is one honest row, bad rows equal it.

    With `z="optimized"` the attackers know the rule A and try out 20 values of z at every step to
    maximize :math:`\|A(\text{rows}) - \mu\|`. The search expands and contracts; it reads the data
    once if the rule reads only inner products. Against a :class:`Blockwise` rule every tile has a
    separate search.

    Args:
        z: number of standard deviations, "optimized", or None for the formula.

    Reference: Baruch et al., *A Little Is Enough: Circumventing Defenses for Distributed Learning*
    (NeurIPS 2019), the attack that prevents convergence. "optimized": the line search of El Mhamdi
    et al., *Distributed Momentum for Byzantine-resilient Stochastic Gradient Descent* (ICLR 2021),
    experiments. Deviation: the search starts from five values, because filters have several maxima.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0], [3.0], [50.0]])
        >>> LittleIsEnough(z=1.5)(rows, torch.tensor([False, False, False, True]))[3]
        tensor([0.5000])
        >>> round(LittleIsEnough().deviations(50, 24), 3)
        1.426
    """

    z: float | Literal["optimized"] | None = None

    name = "little-is-enough"
    aim = "The bias of the direction, which adds up over steps, also with robust rules."
    looks_at_honest = True

    def __post_init__(self) -> None:
        if self.z is not None and self.z != "optimized":
            check_nonnegative("z", self.z)

    @property
    def needs(self) -> frozenset[str]:
        return RULE if self.z == "optimized" else NOTHING

    def deviations(self, n: int, n_bad: int) -> float:
        """The z in use when `n_bad` of n rows are bad."""
        if self.z == "optimized":
            raise failure("z", "be a number or None, which do not depend on the rows", self.z)
        if self.z is not None:
            return self.z
        n_honest, n_supporters = n - n_bad, max(1, n // 2 + 1 - n_bad)
        if n_supporters >= n_honest:
            return 0.0  # a single honest row
        return NormalDist().inv_cdf((n_honest - n_supporters) / n_honest)

    def _bad_rows(self, context: AttackContext) -> Tensor:
        if self.z == "optimized":
            z: Tensor | float = most_harmful_factor(context, context.spread)
        else:
            z = self.deviations(len(context.rows), context.n_bad)
        return (context.mean - z * context.spread) * context.unit
