from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from holdfast.aggregators import Aggregate, Aggregator
from holdfast.checks import check_count, check_fraction
from holdfast.exchange import AgreedBlock, Payload, Round, Wire, WorkerMemory
from holdfast.lab.schemes._scheme import Lie, Scheme, SchemeRun, Sent, schemes
from holdfast.layout import Layout


@final
@schemes.register
@dataclass(frozen=True, kw_only=True)
class Exchange(Scheme):
    """Workers keep what they have not sent, and send a block that all agreed on.

    Arguments are those of :class:`holdfast.exchange.AgreedBlock` and
    :class:`holdfast.exchange.WorkerMemory`. With `report_every=None` the block is random.
    """

    send: float = 0.02
    tile: int = 64
    min_wait: int | None = None
    max_wait: int | None = None
    report_every: int | None = 1
    wire: Wire = "float32"
    beta: float = 1.0

    name = "exchange"
    default_rule = "blockwise(tile=64) | geometric-median"

    def __post_init__(self) -> None:
        check_fraction("send", self.send)
        check_count("tile", self.tile, at_least=1)

    def start(self, layout: Layout, rule: Aggregator, *, n: int, seed: int) -> SchemeRun:
        return _Run(self, layout, rule, n=n, seed=seed)


@final
class _Run(SchemeRun):
    def __init__(
        self, scheme: Exchange, layout: Layout, rule: Aggregator, *, n: int, seed: int
    ) -> None:
        super().__init__(layout, rule, n=n, seed=seed)
        options = {"tile": scheme.tile, "beta": scheme.beta, "wire": scheme.wire}
        self._memories = [WorkerMemory(layout, **options) for _ in range(n)]  # type: ignore[arg-type]
        self._agreed = AgreedBlock(
            self._memories[0].tiling,
            send=scheme.send,
            min_wait=scheme.min_wait,
            max_wait=scheme.max_wait,
            report_every=scheme.report_every,
            seed=seed,
        )
        self._open: tuple[Round, dict[int, Payload]] | None = None

    def send(self, updates: Tensor, present: Tensor, *, lie: Lie | None = None) -> Sent:
        for memory, update in zip(self._memories, updates, strict=True):
            memory.add(update)
        this, n_bytes = Round(self._agreed, self.rule), 0
        if self._agreed.wants_reports:
            reports = torch.stack([self._memories[i].report() for i in present.tolist()])
            n_bytes += reports[0].numel() * reports.element_size()
            arrived = reports if lie is None else lie(reports)
            for i, report in zip(present.tolist(), arrived, strict=True):
                this.report(i, report)
        block = this.agree()
        payloads = {i: self._memories[i].payload(block) for i in present.tolist()}
        n_bytes += next(iter(payloads.values())).n_bytes
        self._open = (this, payloads)
        decoded = [payload.decoded(block, updates.dtype) for payload in payloads.values()]
        return Sent(torch.stack(decoded), block, n_bytes)

    def aggregate(self, sent: Sent) -> Aggregate:
        assert self._open is not None
        this, payloads = self._open
        for i, row in zip(payloads, sent.matrix, strict=True):
            this.receive(i, Payload(row))
        result = this.aggregate()
        this.close()
        for i, payload in payloads.items():
            self._memories[i].sent(sent.block, payload)
        self._open = None
        self.round += 1
        return result

    def kept_norms(self) -> Tensor:
        return torch.stack([torch.linalg.vector_norm(one.vector) for one in self._memories])

    def figures(self) -> dict[str, Any]:
        waits = self._agreed.waits
        return {
            "mean_wait": float(waits.double().mean()),
            "longest_wait": int(waits.max()),
            "n_left_out": sum(memory.n_left_out for memory in self._memories),
        }

    def state_dict(self) -> dict[str, Any]:
        memories = [memory.state_dict() for memory in self._memories]
        return super().state_dict() | {"agreed": self._agreed.state_dict(), "memories": memories}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._agreed.load_state_dict(state["agreed"])
        for memory, saved in zip(self._memories, state["memories"], strict=True):
            memory.load_state_dict(saved)
