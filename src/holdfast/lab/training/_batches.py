"""The samples of each step."""

from typing import final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.partitions import Partition
from holdfast.seeds import stream


@final
class Batches:
    """Indices of the samples of every step, as a function of seed and step.

    Each client passes over its own samples again and again, in a new order each time, and takes
    `row_size` of them per step. If rows have no clients of their own, one pass over all samples
    serves all rows. A step may continue into the next pass: every pass has each sample once.

    Args:
        labels: [N] labels of the training samples, for partitions by label.
        partition: which client holds which samples.
        n_rows: rows per step.
        row_size: samples per row.
        n_trusted: samples that are set aside, chosen at random.
        seed: root of the random numbers.
        has_owners: whether every row has samples of its own, also if the partition is not fixed;
            then they are dealt out at random, in equal numbers.

    Attributes:
        shares: the indices of each client.
        trusted: the indices that are set aside.

    Example:
        >>> from holdfast.lab.partitions import Shuffled
        >>> options = {"n_rows": 2, "row_size": 2, "n_trusted": 0, "seed": 0}
        >>> batches = Batches(torch.zeros(10), Shuffled(), **options)
        >>> sorted(torch.cat([batches.indices(step) for step in range(5)]).tolist())  # two passes
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]
    """

    def __init__(
        self,
        labels: Tensor,
        partition: Partition,
        *,
        n_rows: int,
        row_size: int,
        n_trusted: int,
        seed: int,
        has_owners: bool = False,
    ) -> None:
        if n_trusted >= len(labels):
            requirement = f"leave some of the {len(labels)} training samples to the rows"
            raise failure("n_trusted", requirement, n_trusted)
        order = torch.randperm(len(labels), generator=stream(seed, "trusted"))
        self.trusted, kept = order[:n_trusted], order[n_trusted:].sort().values
        shares = partition.divide(labels.cpu()[kept], n_rows, generator=stream(seed, "partition"))
        if has_owners and not partition.is_fixed:
            dealt = torch.randperm(len(kept), generator=stream(seed, "shares"))
            shares = list(dealt.tensor_split(n_rows))
        self.shares = [kept[share] for share in shares]
        self._kept, self._batch_size = kept, n_rows * row_size
        self._seed = seed
        self._taken = n_rows * row_size // len(self.shares)
        self._passes: dict[int, tuple[int, Tensor]] = {}

    def epoch(self, step: int) -> float:
        """Number of passes over all samples in the first `step` steps."""
        return step * self._batch_size / len(self._kept)

    def indices(self, step: int) -> Tensor:
        """[n_rows * row_size] samples of a step, row by row."""
        start = step * self._taken
        return torch.cat([self._next(client, start) for client in range(len(self.shares))])

    def trusted_indices(self, step: int, n: int) -> Tensor:
        """[n] trusted samples for a step, drawn with replacement."""
        generator = stream(self._seed, "trusted batch", step)
        return self.trusted[torch.randint(len(self.trusted), (n,), generator=generator)]

    def direction_indices(self, step: int, n: int) -> Tensor:
        """[n] different samples for the attackers' directions at a step; none is trusted.

        All samples that are not set aside, if these are fewer.
        """
        generator = stream(self._seed, "direction samples", step)
        return self._kept[torch.randperm(len(self._kept), generator=generator)[:n]]

    def _next(self, client: int, start: int) -> Tensor:
        """The next samples of a client that has taken `start` samples before."""
        found, n_left = [], self._taken
        while n_left:
            number, offset = divmod(start, len(self.shares[client]))
            part = self._pass(client, number)[offset : offset + n_left]
            found.append(part)
            start, n_left = start + len(part), n_left - len(part)
        return torch.cat(found)

    def _pass(self, client: int, number: int) -> Tensor:
        """The client's samples in the order of its pass of this number; the last one is cached."""
        if self._passes.get(client, (-1,))[0] != number:
            share, generator = self.shares[client], stream(self._seed, "order", client, number)
            self._passes[client] = (number, share[torch.randperm(len(share), generator=generator)])
        return self._passes[client][1]
