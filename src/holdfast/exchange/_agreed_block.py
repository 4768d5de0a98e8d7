from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from holdfast.checks import check_count, check_fraction, failure
from holdfast.geometry import Block, Tiling, order_statistics
from holdfast.seeds import stream
from holdfast.selectors import largest

OVERDUE = 2**62
"""Added to the rounds that an overdue tile has waited: above every score."""

BITS = 32
"""A score stands above the rounds that a tile has waited, which decide between equal scores."""

CHUNK = 2**16
"""Tiles whose reports are compared at a time."""


@final
class AgreedBlock:
    r"""The block that all workers send, which everyone computes from all reports.

    Among the tiles that have waited at least `min_wait` rounds, the block has those with the
    largest median over workers of the reported norms. Tiles that have waited `max_wait` rounds come
    first, the longest waiting of them first. Of equal tiles the one that has waited longer comes
    first, then the one with the lower index. Nothing is random, so equal reports give equal blocks
    everywhere. The median is the lower one of two.

    The minimum wait prevents an attacker from concentrating on the few columns that would otherwise
    be sent in every round. The maximum wait bounds how long a value stays in a memory: every tile
    is sent at least once in any `longest_wait` rounds, whatever is reported. A minority of workers
    cannot raise the score of a tile above its largest honest report or lower it below the smallest
    one; within that range it can shift the choice.

    With `report_every=None` there are no reports: the block is drawn from the number of the round
    among the tiles that have waited long enough. With `report_every=R` the reports of every R-th
    round serve for R rounds, and a tile that was sent has the score zero until the next ones.

    Args:
        tiling: the tiles of the parameters.
        send: the share of the tiles that is sent in every round, in (0, 1].
        min_wait: least number of rounds between two sendings of a tile; 0.1 / `send` (rounded, at
            least 1) by default. It must be at most 1 / `send`, so that there are enough tiles.
        max_wait: rounds after which a tile comes first; 4 / `send` by default.
        report_every: rounds from one report to the next.
        seed: root of the random numbers if there are no reports, the same for all workers.

    Attributes:
        round: the number of rounds that have ended.
        waits: [n_tiles] rounds since each tile was sent.

    Example:
        >>> agreed = AgreedBlock(Tiling((6,), 1), send=1 / 3, min_wait=2)
        >>> reports = torch.tensor([[9.0, 8, 7, 6, 5, 4]]).expand(3, -1).bfloat16()
        >>> for _ in range(3):
        ...     block = agreed.choose(reports)
        ...     agreed.sent(block)
        ...     block.tiles.tolist()
        [0, 1]
        [2, 3]
        [0, 1]
    """

    def __init__(
        self,
        tiling: Tiling,
        *,
        send: float = 0.02,
        min_wait: int | None = None,
        max_wait: int | None = None,
        report_every: int | None = 1,
        seed: int = 0,
    ) -> None:
        check_fraction("send", send)
        self.tiling = tiling
        self.n_sent = round(send * tiling.n_tiles)
        """The number of tiles of a block."""
        if self.n_sent < 1:
            needed = f"be enough for one of the {tiling.n_tiles} tiles"
            raise failure("send", needed, send)
        share = self.n_sent / tiling.n_tiles
        most = tiling.n_tiles // self.n_sent
        self.min_wait = min(max(1, round(0.1 / share)), most) if min_wait is None else min_wait
        self.max_wait = max(self.min_wait, round(4 / share)) if max_wait is None else max_wait
        check_count("min_wait", self.min_wait, at_least=1)
        if self.min_wait > most:
            needed = f"be at most {most}, after which {self.n_sent} of {tiling.n_tiles} tiles recur"
            raise failure("min_wait", needed, self.min_wait)
        check_count("max_wait", self.max_wait, at_least=self.min_wait)
        if report_every is not None:
            check_count("report_every", report_every, at_least=1)
        self.report_every = report_every
        self._seed = seed
        self.round = 0
        # Tiles that were never sent have waited long enough.
        self.waits = torch.full((tiling.n_tiles,), self.min_wait)
        self._scores = torch.zeros(tiling.n_tiles, dtype=torch.int16)
        self._latest: Tensor | None = None  # of the round that has not ended

    @classmethod
    def share_of(cls, tiling: Tiling, n_bytes: int, *, bytes_per_value: int = 4) -> float:
        """The `send` for which a worker's values and report take at most `n_bytes` per round."""
        check_count("n_bytes", n_bytes, at_least=1)
        for_values = n_bytes - 2 * tiling.n_tiles
        per_tile = bytes_per_value * tiling.d / tiling.n_tiles
        if for_values < per_tile:
            least = int(2 * tiling.n_tiles + per_tile) + 1
            raise failure("n_bytes", f"be at least {least}, a report and one tile", n_bytes)
        return min(1.0, int(for_values / per_tile) / tiling.n_tiles)

    @property
    def wants_reports(self) -> bool:
        """Whether workers report in this round."""
        return self.report_every is not None and self.round % self.report_every == 0

    @property
    def longest_wait(self) -> int:
        """No tile waits for more rounds than this.

        Overdue tiles are served in their order, `n_sent` of them in each round. No more than that
        become overdue in a round, except the first time, when all may; so the queue is never longer
        than all tiles.
        """
        return self.max_wait + -(-self.tiling.n_tiles // self.n_sent)

    def choose(self, reports: Tensor | None = None) -> Block:
        """The block of this round; the state changes only when it was :meth:`sent`.

        Args:
            reports: [n, n_tiles] what workers report (bfloat16), any values; None in rounds
                without reports.
        """
        if self.wants_reports != (reports is not None):
            needed = "be given in rounds with reports, and only then"
            raise failure("reports", needed, "none" if reports is None else "some")
        self._latest = None if reports is None else self._median(reports)
        if self._latest is not None:
            scores = self._latest.long()
        elif self.report_every is None:
            drawn = stream(self._seed, "agreed block", self.round)
            scores = torch.randint(2**30, self.waits.shape, generator=drawn)
        else:
            scores = self._scores.long()
        priority = (scores << BITS) + self.waits
        priority = priority.where(self.waits >= self.min_wait, torch.iinfo(torch.int64).min)
        priority = priority.where(self.waits < self.max_wait, self.waits + OVERDUE)
        return Block(self.tiling, largest(priority, self.n_sent))

    def _median(self, reports: Tensor) -> Tensor:
        """[n_tiles] the lower median of the reports, as whole numbers in the same order."""
        n_tiles = self.tiling.n_tiles
        if reports.ndim != 2 or len(reports) == 0 or reports.shape[1] != n_tiles:
            raise failure("reports", f"have shape [n, {n_tiles}]", tuple(reports.shape))
        # The bits of bfloat16 numbers that are not negative, read as whole numbers, have the same
        # order; negative ones are below them and NaN above. So lies of any kind are just small or
        # large, and vector units compare 32 of them at once.
        bits = reports.detach().cpu().to(torch.bfloat16).contiguous().view(torch.int16)
        middle = order_statistics(len(bits), ((len(bits) - 1) // 2,))
        # In chunks that stay in the cache while they pass the comparators.
        return torch.cat([middle(list(chunk))[0] for chunk in bits.split(CHUNK, dim=1)])

    def sent(self, block: Block) -> None:
        """Record that all workers sent and received this block: the round has ended."""
        if block.tiling != self.tiling:
            raise failure("block", f"be one of {self.tiling}", block.tiling)
        self.waits[block.tiles] = 0
        self.waits += 1
        if self._latest is not None:
            self._scores = self._latest.clone()
        self._scores[block.tiles] = 0
        self.round += 1

    def state_dict(self) -> dict[str, Any]:
        """The number of the round, the waits and the last scores."""
        return {
            "round": self.round,
            "waits": self.waits.clone(),
            "scores": self._scores.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state exactly."""
        n_tiles = len(state["waits"])
        if n_tiles != self.tiling.n_tiles:
            raise failure("state['waits']", f"have {self.tiling.n_tiles} tiles", n_tiles)
        self.round = int(state["round"])
        self.waits, self._scores = state["waits"].clone(), state["scores"].clone()
