import pytest
import torch

from tests.distributed.cases import both_exchanges
from tests.distributed.workers import Workers


# Fewer columns than ranks; unequal shares; more than one piece for every rank.
@pytest.mark.parametrize("size", [2, 4, 5, 1003, 300_001])
def test_rows_and_gathered_vectors_are_those_of_all_ranks(workers: Workers, size: int) -> None:
    vectors = torch.arange(size, dtype=torch.float64) + 0.1 * torch.arange(4)[:, None].double()
    padded = torch.nn.functional.pad(vectors, (0, max(0, 4 - size)))
    shares = padded.tensor_split(4, dim=1)
    for rank, found in enumerate(workers.run(both_exchanges, size)):
        for rows, whole in zip(found[::2], found[1::2], strict=True):
            assert rows.equal(shares[rank])
            assert whole.equal(vectors[0])
