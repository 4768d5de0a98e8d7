from dataclasses import dataclass, field
from typing import final

from holdfast.checks import check_count, check_instance, check_positive, check_share
from holdfast.lab.schemes import Exchange, Scheme


@final
@dataclass(frozen=True, kw_only=True)
class Workers:
    """Rows whose owners persist: how they compute an update, and how they send it.

    Args:
        scheme: how updates are sent.
        local_steps: None if the update is the learning rate times the gradient. Else the number of
            steps that every worker makes with an optimizer of its own between two rounds; the
            update is the difference of the parameters.
        outer_lr: factor of the direction by which the parameters move.
        outer_momentum: momentum of that move, in [0, 1).
        absent: share of the workers that miss a round, drawn anew for each. Bad ones miss none.

    Example:
        >>> Workers(scheme=Exchange(send=0.05)).scheme.send
        0.05
    """

    scheme: Scheme = field(default_factory=Exchange)
    local_steps: int | None = None
    outer_lr: float = 1.0
    outer_momentum: float = 0.0
    absent: float = 0.0

    def __post_init__(self) -> None:
        check_instance("scheme", self.scheme, Scheme)
        if self.local_steps is not None:
            check_count("local_steps", self.local_steps, at_least=1)
        check_positive("outer_lr", self.outer_lr)
        check_share("outer_momentum", self.outer_momentum, below=1.0)
        check_share("absent", self.absent, below=1.0)

    def n_absent(self, n: int) -> int:
        """The number of workers among n that miss a round."""
        return round(self.absent * n)
