"""The messages between server and clients of an exchange, in Flower's records."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from torch import Tensor

from holdfast.exchange import Payload, Wire, message_size
from holdfast.federated._model_arrays import ModelArrays, Numbers, numbers_of
from holdfast.geometry import Block, Tiling

KEY = "holdfast.exchange"
"""The record of an instruction, and the beginning of the names of arrays in a reply."""

ROUND, VALUES, REPORT = (f"{KEY}.{name}" for name in ("round", "values", "report"))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Instruction:
    """The server's message to a client in a round.

    Attributes:
        round: the number of the round of the exchange.
        tiles: the block that all send.
        acknowledged: the last round whose values of this client arrived and counted; -1 for none.
        tile: columns of a tile.
        beta: how much of the memory is kept.
        wire: the dtype of values.
        apart: patterns of arrays that are sent whole.
    """

    round: int
    tiles: Tensor
    acknowledged: int
    tile: int
    beta: float
    wire: Wire
    apart: tuple[str, ...]

    def record(self) -> ConfigRecord:
        """The instruction as a record."""
        values = {**vars(self), "tiles": packed_tiles(self.tiles), "apart": list(self.apart)}
        return ConfigRecord(values)

    @classmethod
    def of(cls, record: Any) -> "Instruction":
        """The instruction in a record."""
        values = {**record, "tiles": unpacked_tiles(record["tiles"])}
        return cls(**{**values, "apart": tuple(record["apart"])})

    def block(self, model: ModelArrays) -> Block:
        """The block, on the columns of the model."""
        return Block(Tiling(model.sizes, self.tile), self.tiles)


@final
@dataclass(frozen=True, eq=False)
class Contribution:
    """A client's reply: its values on the block, its report, and the arrays that are sent whole."""

    round: int
    payload: Payload
    report: Tensor
    apart: dict[str, Numbers]

    def record(self, model: ModelArrays, block: Block) -> ArrayRecord:
        """The contribution as a record."""
        size = message_size(block.tiling, len(block.tiles), self.payload.values.dtype)
        arrays = {
            ROUND: np.asarray(self.round),
            VALUES: self.payload.packed(size).numpy(),
            REPORT: self.report.view(torch.int16).numpy(),
        }
        record = model.record(self.apart)
        for name, value in arrays.items():
            record[name] = Array(value)
        return record

    @classmethod
    def of(
        cls, record: ArrayRecord, model: ModelArrays, number: int, block: Block, wire: Wire
    ) -> "Contribution":
        """The contribution in a reply; a ValueError says what is wrong with it."""
        own = {name: record[name] for name in (ROUND, VALUES, REPORT) if name in record}
        if len(own) < 3:
            raise ValueError("has no part in the exchange; is the client's mod worker_memory()?")
        given, values, report = (numbers_of(array) for array in own.values())
        if given.shape != () or int(given) != number:
            raise ValueError(f"has the block of round {given.tolist()}, not of {number}")
        dtype = model.dtype if wire == "float32" else getattr(torch, wire)
        size, n_tiles = message_size(block.tiling, len(block.tiles), dtype), block.tiling.n_tiles
        if values.dtype != np.uint8 or values.shape != (size,):
            raise ValueError(f"has values of {values.dtype} {values.shape}, not uint8 ({size},)")
        if report.dtype != np.int16 or report.shape != (n_tiles,):
            raise ValueError(f"has a report of {report.dtype} {report.shape}, not ({n_tiles},)")
        payload = Payload.unpacked(torch.tensor(values), block, dtype)
        if not bool(torch.isfinite(payload.decoded(block, model.dtype)).all()):
            raise ValueError("is not finite")
        others = {name: array for name, array in record.items() if name not in own}
        apart = model.checked(others, model.apart)
        return cls(number, payload, torch.tensor(report).view(torch.bfloat16), apart)


def packed_tiles(tiles: Tensor) -> bytes:
    """The numbers of tiles as bytes."""
    return tiles.numpy().astype("<i4").tobytes()


def unpacked_tiles(content: bytes) -> Tensor:
    """The numbers of tiles in bytes."""
    return torch.from_numpy(np.frombuffer(content, "<i4").astype(np.int64))
