from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.checks import check_flag, check_instance, failure
from holdfast.geometry import DenseRows
from holdfast.seeds import stream
from holdfast.threats import Adversaries, Attack, Corruption, ReportLie, State, rows_to_samples

NOBODY = Adversaries(bad_fraction=0.0)


@final
@dataclass(frozen=True, kw_only=True)
class Threat:
    """An attack on rows, a corruption of samples, both or neither, and who is bad.

    All random numbers depend only on the seed of the run and the step, so that a run can be resumed
    at any step.

    Args:
        attack: what bad rows send in place of their gradient.
        corruption: what happens to bad samples before the model sees them.
        adversaries: who is bad. For an attack, a share of the rows. For a corruption, a share of
            the samples of the batch in any row or, with fixed identities, of the training samples.
        whole_rows: whether a corruption hits all samples of bad rows instead, and no others.
        lie: what bad workers report, where workers agree on a block by reports.
        repeats: whether attacks and corruptions draw the same random numbers at every step. With
            fixed identities this is what the experiments published with the paper did.

    Example:
        >>> from holdfast.threats import ScaledFlip
        >>> threat = Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=0.4))
        >>> int(threat.bad_rows(32, seed=0, step=7).sum())
        13
    """

    attack: Attack | None = None
    corruption: Corruption | None = None
    adversaries: Adversaries = NOBODY
    whole_rows: bool = False
    repeats: bool = False
    lie: ReportLie | None = None

    def __post_init__(self) -> None:
        if self.attack is not None:
            check_instance("attack", self.attack, Attack)
        if self.corruption is not None:
            check_instance("corruption", self.corruption, Corruption)
        if self.lie is not None:
            check_instance("lie", self.lie, ReportLie)
        check_instance("adversaries", self.adversaries, Adversaries)
        check_flag("whole_rows", self.whole_rows)
        check_flag("repeats", self.repeats)
        if self.whole_rows and self.corruption is None:
            raise failure("whole_rows", "be False without a corruption", True)
        if self.attack is not None or self.corruption is not None or self.lie is not None:
            return
        if self.repeats:
            raise failure("repeats", "be False without an attack or a corruption", True)
        if self.adversaries != NOBODY:
            needed = "have no bad rows without an attack or a corruption"
            raise failure("adversaries", needed, self.adversaries)

    @property
    def hits_rows(self) -> bool:
        """Whether there are bad rows, not only bad samples."""
        return self.attack is not None or self.lie is not None or self.whole_rows

    def bad_rows(self, n_rows: int, *, seed: int, step: int) -> Tensor:
        """Bool [n_rows], True where a row is bad at this step."""
        if not self.hits_rows:
            return torch.zeros(n_rows, dtype=torch.bool)
        return self.adversaries.draw(n_rows, generator=self._identities(seed, "bad rows", step))

    def bad_samples(
        self, indices: Tensor, bad_rows: Tensor, *, n_train: int, seed: int, step: int
    ) -> Tensor:
        """Bool [N], True where a sample of the batch is bad.

        `indices` [N] are those of the batch among the `n_train` training samples, `bad_rows` is the
        result of :meth:`bad_rows`. Fixed identities are drawn among all training samples, so that
        the same images are bad whenever they are used.
        """
        if self.corruption is None:
            return torch.zeros(len(indices), dtype=torch.bool)
        if self.whole_rows:
            return rows_to_samples(bad_rows, len(indices))
        generator = self._identities(seed, "bad samples", step)
        if self.adversaries.redrawn:
            return self.adversaries.draw(len(indices), generator=generator)
        return self.adversaries.draw(n_train, generator=generator)[indices.cpu()]

    def corrupt(
        self, images: Tensor, labels: Tensor, bad_samples: Tensor, *, seed: int, step: int
    ) -> tuple[Tensor, Tensor]:
        """The batch as the model sees it; images [N, C, H, W] on image scale."""
        if self.corruption is None:
            return images, labels
        generator = self._noise(seed, "corruption", step)
        return self.corruption(images, labels, bad_samples, generator=generator)

    def apply_attack(
        self,
        rows: DenseRows | Tensor,
        bad_rows: Tensor,
        *,
        seed: int,
        step: int,
        state: State = None,
        rule: Callable[..., Tensor] | None = None,
        rule_arguments: Mapping[str, Any] | None = None,
        directions: Mapping[str, Tensor] | None = None,
        sections: Sequence[int] | None = None,
    ) -> State:
        """Overwrite bad rows in place with what they send; returns the attackers' next state.

        The attackers know the `rule` and what it will be given besides the rows, but not the random
        numbers that it will draw. `directions` are those that the attack needs, `sections` the
        columns of each parameter in a matrix of rows.
        """
        if self.attack is None or not bool(bad_rows.any()):
            return state
        known = dict(rule_arguments or {})
        if isinstance(rule, Aggregator) and "generator" in rule.needs:
            known["generator"] = self._noise(seed, "trials of the rule", step)
        if isinstance(rows, DenseRows):
            sections = rows.sections
            (rows,) = rows.tensors
        return self.attack.overwrite(
            rows,
            bad_rows,
            state=state,
            generator=self._noise(seed, "attack", step),
            rule=rule,
            rule_arguments=known,
            directions=directions or {},
            sections=sections,
            step=step,
        )

    def _identities(self, seed: int, name: str, step: int) -> torch.Generator:
        return stream(seed, name, step if self.adversaries.redrawn else 0)

    def _noise(self, seed: int, name: str, step: int) -> torch.Generator:
        return stream(seed, name, 0 if self.repeats else step)
