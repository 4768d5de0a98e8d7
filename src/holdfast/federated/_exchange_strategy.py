from collections.abc import Callable
from typing import final

import torch
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp.strategy import Strategy

from holdfast.aggregators import Aggregator, Blockwise
from holdfast.checks import check_share, failure
from holdfast.exchange import AgreedBlock, Round, Wire
from holdfast.federated._clients import Decision, RoundReport
from holdfast.federated._exchange_messages import KEY, Contribution, Instruction
from holdfast.federated._model_arrays import ModelArrays
from holdfast.federated._replies import Sorted
from holdfast.federated._wrapping import WrappingStrategy
from holdfast.geometry import Block, Tiling
from holdfast.monitor import Suspect
from holdfast.seeds import stream


@final
class ExchangeStrategy(WrappingStrategy[Contribution]):
    r"""The exchange over Flower: clients send a small block of their updates and keep the rest.

        strategy = ExchangeStrategy(FedAvg())            # in the server app
        app = ClientApp(mods=[worker_memory()])          # in the client app

    In every round the server chooses a block of tiles. Every client adds its update to its memory,
    sends its values on the block, and reports the norms of the rest. The server applies the rule to
    the values and moves the model on the block. The next block follows from these reports; the
    first block is random. The server is trusted, clients are not;
    :class:`~holdfast.exchange.AgreedBlock` states what a lie in a report can cause. With the
    defaults, a client sends about 3 % of the model's bytes to the server; the server sends the
    whole model to the clients, as usual.

    A client removes sent values from its memory when the server acknowledges them in a later
    message. Late or lost replies, rounds without this client, and rounds that did not change the
    model therefore lose nothing. A client that joins begins with an empty memory.

    A memory is multiplied by `beta` in every round. While a tile waits, local epochs start from the
    same values and find much of the same update again, so the sum over a long wait is too large a
    step. With `beta` below 1 a memory holds at most 1 / (1 - `beta`) updates. With short waits (10
    % sent), or rounds of one small gradient step, use 1, which loses nothing; docs/federated.md has
    measurements.

    Integer arrays, arrays without dimensions, and those that match `apart` are sent whole and
    combined by the coordinate median: running statistics must not be summed over rounds.

    Args:
        strategy: the strategy to wrap. Use FedAvg: a server step with momentum also moves columns
            that were not sent.
        rule: turns the rows of the block into a direction.
        send: the share of the tiles that is sent in every round.
        tile: columns that are reported and sent together.
        min_wait: rounds from sending a tile to sending it again; 0.1 / `send` by default.
        max_wait: rounds after which a tile comes first; 4 / `send` by default.
        beta: factor of a memory in every round, at most 1.
        wire: how values travel: "float32", "bfloat16" or "int8"; rounding stays in the memory.
        apart: patterns of the names of arrays that are sent whole.
        max_weight: see :class:`RobustStrategy`.
        window: number of past rounds that suspicion considers.
        on_round: called with the :class:`RoundReport` of every round.
        on_suspect: called with a client that becomes suspect.

    Attributes:
        agreed: the agreement on blocks; None before the first round.
        report: that of the last round; None before. See :class:`RobustStrategy` for the others.
    """

    def __init__(
        self,
        strategy: Strategy,
        rule: Aggregator | str = "blockwise(tile=64) | geometric-median",
        *,
        send: float = 0.02,
        tile: int = 64,
        min_wait: int | None = None,
        max_wait: int | None = None,
        beta: float = 0.7,
        wire: Wire = "float32",
        apart: tuple[str, ...] = ("*running_mean", "*running_var"),
        max_weight: float = 3.0,
        window: int = 200,
        on_round: Callable[[RoundReport], None] | None = None,
        on_suspect: Callable[[Suspect], None] | None = None,
    ) -> None:
        super().__init__(
            strategy,
            rule,
            max_weight=max_weight,
            window=window,
            on_round=on_round,
            on_suspect=on_suspect,
        )
        if isinstance(self.rule, Blockwise) and self.rule.tile not in (tile, "parameter"):
            raise failure("rule", f"have tiles of {tile} columns, as `tile` says", self.rule.tile)
        if beta != 1.0:
            check_share("beta", beta, below=1.0)
        self.tile, self.beta, self.wire = tile, beta, wire
        self._apart = apart
        self.agreed: AgreedBlock | None = None
        self._waits = {"send": send, "min_wait": min_wait, "max_wait": max_wait}
        self._reports: dict[int, torch.Tensor] = {}
        self._acknowledged: dict[int, int] = {}
        self._this: Round | None = None

    def _instruct(self, server_round: int, model: ModelArrays, messages: list[Message]) -> None:
        tiling = Tiling(model.sizes, self.tile)
        if self.agreed is None:
            self.agreed = AgreedBlock(tiling, **self._waits)  # type: ignore[arg-type]
        elif self.agreed.tiling != tiling:
            raise failure("arrays", "have the same sizes in every round", model.sizes)
        this = self._this = Round(self.agreed, self.rule, dtype=model.dtype)
        for node, report in self._reports.items():
            this.report(node, report)
        if not self._reports:
            generator = stream(0, "first block", this.number)
            drawn = torch.empty(tiling.n_tiles).exponential_(generator=generator)
            this.report("drawn", drawn.bfloat16())
        block = this.agree()
        for message in messages:
            instruction = Instruction(
                round=this.number,
                tiles=block.tiles,
                acknowledged=self._acknowledged.get(message.metadata.dst_node_id, -1),
                tile=self.tile,
                beta=self.beta,
                wire=self.wire,
                apart=self._apart,
            )
            # Messages share their records, so each gets a dictionary of its own.
            message.content = RecordDict({**message.content, KEY: instruction.record()})

    def _read(self, model: ModelArrays, record: ArrayRecord) -> Contribution:
        this, block = self._open()
        return Contribution.of(record, model, this.number, block, self.wire)

    def _decide(
        self, server_round: int, model: ModelArrays, found: Sorted[Contribution]
    ) -> Decision:
        this, block = self._open()
        for node, reply in found.good.items():
            this.receive(node, reply.arrays.payload)
        weights = None
        if "row_weights" in self.rule.takes:
            weights = dict(zip(found.good, self._shares(found).tolist(), strict=True))
        result = this.aggregate(weights)
        update = torch.zeros(block.tiling.d, dtype=model.dtype)
        block.tiling.put(update, block.tiles, result.vector)
        voted = model.voted([reply.arrays.apart for reply in found.good.values()])
        this.close()
        self._reports = {node: reply.arrays.report for node, reply in found.good.items()}
        self._acknowledged |= dict.fromkeys(found.good, this.number)
        # Rows of different blocks cannot be compared with each other.
        nothing = torch.full((len(found.good),) * 2, torch.nan, dtype=torch.float64)
        return Decision(result, update, voted, nothing)

    def _open(self) -> tuple[Round, Block]:
        """The round that is under way, and its block."""
        assert self._this is not None
        assert self._this.block is not None, "it was agreed on when clients were instructed"
        return self._this, self._this.block
