"""What one rank of an exchange measures; `benchmarks.hosts` runs these functions side by side."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.ranks import bytes_sent, take_turns, vector
from holdfast import Layout
from holdfast.distributed import Exchange
from holdfast.distributed._testimony import Digest, Testimony
from holdfast.exchange import Round
from holdfast.lab.models import models
from holdfast.seeds import stream


def model_with_gradients(name: str) -> nn.Module:
    """A model of the lab, with gradients of random numbers: a part in common, and noise as long."""
    model = models[name](generator=stream(0, "model"))
    layout = Layout(model)
    layout.write_gradient(vector(layout.d))
    return model


def exchange_of(name: str, **options: Any) -> Exchange:
    """The exchange of a model with gradients; its steps move next to nothing."""
    model = model_with_gradients(name)
    return Exchange(model, torch.optim.SGD(model.parameters(), lr=1e-6), **options)


def rounds(name: str, n_rounds: int, **options: Any) -> dict[str, Any]:
    """Seconds and bytes of an all-reduce of the gradient, and of a round of the exchange."""
    exchange = exchange_of(name, **options)
    total = vector(exchange.agreed.tiling.d)
    candidates: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(total),
        "exchange": exchange.step,
    }
    for _ in range(3):  # tiles that were never sent are chosen by their norms at first
        exchange.step()
    seconds = take_turns(candidates, n_rounds)
    sent = {key: bytes_sent(call, 3) for key, call in candidates.items()}
    return {"d": len(total), "seconds": seconds, "sent": sent, "message": exchange.bytes_sent}


def parts_of_a_round(name: str, n_rounds: int) -> dict[str, float]:
    """Seconds of the parts of a round, and of the all-reduce."""
    exchange = exchange_of(name)
    exchange.step()
    memory, agreed, made = exchange.memory, exchange.agreed, exchange._rounds
    messages, updates = made.messages, exchange._updates
    this = Round(agreed, exchange.rule)
    reports = [one.clone() for one in messages.reports(memory.report())]
    for rank, report in enumerate(reports):
        this.report(rank, report)
    block = this.agree()
    payload = memory.payload(block)
    for rank, values in enumerate(messages.payloads(payload, block)):
        this.receive(rank, values)
    rows, found = this.rows(), this.aggregate()
    total = vector(agreed.tiling.d)
    stacked = torch.stack(reports)
    testimony = Testimony(
        round=0,
        received=messages.received(),
        block=Digest(block.tiles).value(),
        direction=Digest(found.vector).value(),
        buffers=Digest().value(),
        has_failed=False,
        n_left_out=0,
    )
    nobody = torch.zeros(dist.get_world_size(), dtype=torch.bool)
    products = torch.full((rows.n, rows.n), torch.nan, dtype=torch.float64)
    parts: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(total),
        "whole_round": exchange.step,
        "add": lambda: updates.step(memory),
        "send_reports": lambda: messages.reports(memory.report()),
        "choose": lambda: agreed.choose(stacked),
        "send_values": lambda: messages.payloads(memory.payload(block), block),
        "buffers": made._buffers.medians,
        "rule": lambda: exchange.rule.aggregate(rows),
        "testimonies": lambda: messages.testimonies(testimony),
        "outer_step": lambda: exchange._outer(block, found.vector),
        "sent": lambda: memory.sent(block, payload),
        "watch": lambda: exchange.monitor.observe(products, nobody),
    }
    return take_turns(parts, n_rounds)
