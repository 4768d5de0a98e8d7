"""Who holds which samples."""

from holdfast.lab.partitions._dirichlet import Dirichlet
from holdfast.lab.partitions._partition import Partition
from holdfast.lab.partitions._shards import Shards
from holdfast.lab.partitions._shuffled import Shuffled
from holdfast.registry import Registry

__all__ = ["Dirichlet", "Partition", "Shards", "Shuffled", "partitions"]

partitions: Registry[Partition] = Registry("partition", [Dirichlet, Shards, Shuffled])
"""Every partition by its short name: `partitions.parse("shards(n_shards=80)")`."""
