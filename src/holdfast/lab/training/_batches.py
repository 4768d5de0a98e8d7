"""Which samples a step sees."""

from typing import final

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.lab.partitions import Partition
from holdfast.seeds import stream


@final
class Batches:
    """The indices of the samples of every step, as a function of seed and step alone.

    Every client walks over its own samples again and again, in a new order at each pass, `row_size` at a step. Where rows have no clients of their own, one walk over all
    samples serves all rows. Walks are not cut at the end of a pass: each sample comes once in each.

    Args:
        labels: [N] of the training samples, by which partitions divide them.
        partition: who holds which samples.
        n_rows: rows of a step.
        row_size: samples of a row.
        n_trusted: samples that are kept aside, chosen at random.
        seed: root of the random numbers.

    Attributes:
        shares: the indices that each client holds.
        trusted: the indices that were kept aside.

    Example:
        >>> from holdfast.lab.partitions import Shuffled
        >>> batches = Batches(torch.zeros(10), Shuffled(), n_rows=2, row_size=2, n_trusted=0, seed=0)
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
    ) -> None:
        if n_trusted >= len(labels):
            raise failure(
                "n_trusted",
                f"leave some of the {len(labels)} training samples to the rows",
                n_trusted,
            )
        order = torch.randperm(len(labels), generator=stream(seed, "trusted"))
        self.trusted, kept = order[:n_trusted], order[n_trusted:].sort().values
        shares = partition.divide(labels.cpu()[kept], n_rows, generator=stream(seed, "partition"))
        self.shares = [kept[share] for share in shares]
        self._n, self._batch_size = len(kept), n_rows * row_size
        self._seed = seed
        self._taken = n_rows * row_size // len(self.shares)
        self._passes: dict[int, tuple[int, Tensor]] = {}

    def epoch(self, step: int) -> float:
        """How many passes over all samples so many steps are; whole where it should be."""
        return step * self._batch_size / self._n

    def indices(self, step: int) -> Tensor:
        """[n_rows * row_size] the samples of a step, row by row."""
        return torch.cat(
            [self._walk(client, step * self._taken) for client in range(len(self.shares))]
        )

    def trusted_indices(self, step: int, n: int) -> Tensor:
        """[n] samples of those kept aside, drawn with replacement."""
        drawn = torch.randint(
            len(self.trusted), (n,), generator=stream(self._seed, "trusted batch", step)
        )
        return self.trusted[drawn]

    def _walk(self, client: int, start: int) -> Tensor:
        """The next samples of a client that has taken `start` before."""
        own, found, n_left = len(self.shares[client]), [], self._taken
        while n_left:
            number, offset = divmod(start, own)
            part = self._pass(client, number)[offset : offset + n_left]
            found.append(part)
            start, n_left = start + len(part), n_left - len(part)
        return torch.cat(found)

    def _pass(self, client: int, number: int) -> Tensor:
        """The client's samples in the order of its pass of this number; the latest is kept."""
        if self._passes.get(client, (-1,))[0] != number:
            order = torch.randperm(
                len(self.shares[client]), generator=stream(self._seed, "order", client, number)
            )
            self._passes[client] = (number, self.shares[client][order])
        return self._passes[client][1]
