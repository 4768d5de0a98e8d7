"""The base of all schemes: how the updates of workers become rows for the rule."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator
from holdfast.checks import failure
from holdfast.geometry import Block, DenseRows, Tiling
from holdfast.layout import Layout
from holdfast.registry import Registry
from holdfast.seeds import stream
from holdfast.threats import ReportLie

FLOAT = 4
"""Bytes of a value that is sent as float32."""
INDEX = 4
"""Bytes of the number of a column, which a worker sends with the value if the choice is its own."""


@final
@dataclass(frozen=True, eq=False)
class Liars:
    """Workers that lie in their reports.

    Args:
        lie: what they report.
        mask: bool [n], who they are.
    """

    lie: ReportLie
    mask: Tensor


@final
@dataclass(frozen=True, eq=False)
class Sent:
    """What the workers of one round have sent, as the rule meets it.

    Args:
        matrix: [p, k] a row for each worker that is present. Attackers overwrite their rows.
        block: the k columns.
        n_bytes: what one worker sent in this round.
    """

    matrix: Tensor
    block: Block
    n_bytes: int

    @cached_property
    def sections(self) -> tuple[int, ...]:
        """The number of columns in each parameter that has any."""
        return tuple(self.block.tiling.by_section(self.block.tiles).values())

    @cached_property
    def rows(self) -> DenseRows:
        """The rows, cut by parameter; they share the memory of the matrix."""
        return DenseRows(list(torch.split(self.matrix, list(self.sections), dim=1)))


class Scheme(ABC):
    """Describes how workers send their updates; :meth:`start` creates the state of a run."""

    name: ClassVar[str]
    """The short name, as in `"exchange(send=0.02)"`."""

    default_rule: ClassVar[str] = "geometric-median"
    """The rule that the method is published with, or that suits it best."""

    @property
    def has_reports(self) -> bool:
        """Whether workers report before they send."""
        return False

    @abstractmethod
    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> "SchemeRun":
        """The state of `n` workers and of a server before the first round."""


schemes: Registry[Scheme] = Registry("scheme")
"""Every scheme by its short name: `schemes.parse("rosdhb(momentum=0.99)")`."""


class SchemeRun(ABC):
    """The state of all workers, and of the server, under one scheme.

    A round is

        sent = scheme.send(updates, present)
        ...                                     # attackers overwrite rows of sent.matrix
        result = scheme.aggregate(sent)         # result.vector [k] is the direction

    after which the parameters move by minus the direction on `sent.block`.

    Attackers overwrite what the rule meets. Where that is a state that the server keeps of each
    worker, this is more than they can do in truth, because what they send in one round changes
    only some columns of it. It leaves no trace: in the next round they choose again.

    Args:
        layout: the parameters.
        rule: turns the rows of a round into a direction.
        n: number of workers.
        seed: root of the random numbers.

    Attributes:
        round: the number of rounds that have ended.
        whole: the block of all columns.
    """

    def __init__(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> None:
        self.layout, self.rule, self.n, self._seed = layout, rule, n, seed
        self.round = 0
        whole = Tiling(layout.sizes, None)
        self.whole = Block(whole, torch.arange(whole.n_tiles))

    @property
    def known_rule(self) -> Callable[..., Tensor]:
        """What attackers know of the way from rows to a direction."""
        return self.rule

    @abstractmethod
    def send(self, updates: Tensor, present: Tensor, *, liars: Liars | None = None) -> Sent:
        """What the workers send.

        Args:
            updates: [n, d] what each has computed, in the units of parameters; may be overwritten.
            present: [p] those that take part in this round, increasing. The others have computed
                their update, but nobody hears of them.
            liars: those who lie in their reports, in schemes that have some.
        """

    def aggregate(self, sent: Sent) -> Aggregate:
        """The rule's result for the rows as they are now; ends the round."""
        arguments: dict[str, Any] = {}
        if "generator" in self.rule.takes:
            arguments["generator"] = stream(self._seed, "rule of the round", self.round)
        result = self.rule.aggregate(sent.rows, **arguments)
        self.round += 1
        return result

    def kept_norms(self) -> Tensor:
        """[n] the norm of what each worker has not sent yet."""
        return torch.zeros(self.n)

    def figures(self) -> dict[str, Any]:
        """Further figures of the last round, for the record."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What goes on from round to round."""
        return {"round": self.round}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly."""
        self.round = int(state["round"])


def count_of(send: float, d: int) -> int:
    """The number of columns that are the share `send` of d."""
    k = round(send * d)
    if k < 1:
        raise failure("send", f"be enough for one of the {d} columns", send)
    return k


def sparse_bytes(k: int) -> int:
    """The bytes of k values in columns of the worker's own choice."""
    return k * (FLOAT + INDEX)


def own_largest(rows: Tensor, k: int) -> Tensor:
    """[n, d] the k entries of largest size in each row, and zeros."""
    columns = rows.abs().topk(k, dim=1, sorted=False).indices
    return torch.zeros_like(rows).scatter_(1, columns, rows.gather(1, columns))
