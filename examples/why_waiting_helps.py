r"""Why waiting makes a rule strong, in one figure.

Left: how far honest workers are from their mean, in lengths of that mean, in the tiles that are
sent in a round, over the rounds that a tile has waited. Attackers who want to pass for honest live
in this spread. Right: what each way of sending keeps under the strongest attack by 8 of 20 workers,
from the record of examples/exchange_under_attack.py. From the project's root:

    python -m examples.why_waiting_helps docs/results/exchange_under_attack.jsonl \
        docs/results/why_waiting_helps.svg
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path

import torch
from examples.exchange_under_attack import ATTACKS, NONE, worth
from examples.run_records import Run, chosen
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from holdfast import Layout
from holdfast.exchange import AgreedBlock, OuterStep, Round, WorkerMemory
from holdfast.lab.data import load
from holdfast.lab.models import models
from holdfast.seeds import stream
from holdfast.sources import MicroBatches

N_WORKERS, N_ROUNDS, ROW_SIZE, LR = 20, 300, 32, 0.05
RANDOM = {"report_every": None, "min_wait": 1}  # so that all waits occur
SHOWN = {
    "everything sent": "everything sent",
    "worker momentum 0.9": "everything sent,\nworker momentum",
    "worker momentum 0.9, averaged": "worker momentum,\naveraged model",
    "RoSDHB 0.9": "RoSDHB",
    "Byz-EF21 0.9": "Byz-EF21",
    "exchange, 2 %": "exchange",
    "exchange, 2 %, averaged": "exchange,\naveraged model",
}
"""Ways of sending, and what the figure calls them."""


def spreads() -> list[tuple[int, float]]:
    """For each tile of each round: the rounds it has waited, and its spread over its mean."""
    data = load("fashion-mnist-slice")
    model = models["small-mlp"](shape=data.shape, generator=stream(0, "model"))
    layout, source = Layout(model), MicroBatches(model, nn.CrossEntropyLoss(), n_rows=N_WORKERS)
    memories = [WorkerMemory(layout) for _ in range(N_WORKERS)]
    agreed, outer = AgreedBlock(memories[0].tiling, **RANDOM), OuterStep(layout)  # type: ignore[arg-type]
    found: list[tuple[int, float]] = []
    for step in range(N_ROUNDS):
        drawn = torch.randint(
            len(data.train), (N_WORKERS * ROW_SIZE,), generator=stream(0, "batch", step)
        )
        images, labels = data.train.batch(drawn)
        rows = source(data.normalize(images), labels)
        for i, memory in enumerate(memories):
            memory.add(rows[i], scale=LR)
        this = Round(agreed, "mean")
        block = this.agree()
        waits = agreed.waits[block.tiles].clone()
        payloads = [memory.payload(block) for memory in memories]
        for i, payload in enumerate(payloads):
            this.receive(i, payload)
        direction = this.aggregate().vector
        values = torch.stack([payload.values for payload in payloads])
        found += zip(waits.tolist(), spread_of(values, block.tiling.width or 1), strict=False)
        this.close()
        outer(block, direction)
        for memory, payload in zip(memories, payloads, strict=True):
            memory.sent(block, payload)
    return found


def spread_of(values: Tensor, width: int) -> list[float]:
    """The mean distance of workers [n, k] from their mean in every whole tile, over its length."""
    n_tiles = values.shape[1] // width
    tiled = values[:, : n_tiles * width].view(len(values), n_tiles, width)
    middle = tiled.mean(0)
    distance = torch.linalg.vector_norm(tiled - middle, dim=2).mean(0)
    ratio: list[float] = (distance / torch.linalg.vector_norm(middle, dim=1)).tolist()
    return ratio


def draw_spread(axes: Axes, found: list[tuple[int, float]]) -> None:
    """The median spread over the wait, beside what independent noise would have."""
    edges = [1, 3, 6, 12, 25, 50, 100, 200]
    points = []
    for low, high in pairwise(edges):
        inside = [ratio for wait, ratio in found if low <= wait < high and ratio == ratio]
        if len(inside) >= 20:
            points.append(((low * high) ** 0.5, torch.tensor(inside).median().item()))
    waits, ratios = zip(*points, strict=True)
    axes.loglog(waits, ratios, "o-", color="C0", label="measured, median over tiles")
    first = ratios[0] * waits[0] ** 0.5
    axes.loglog(waits, [first / wait**0.5 for wait in waits], "--", color="0.6", label="1/√wait")
    axes.set(title="What attackers hide in", xlabel="rounds a tile has waited")
    axes.set_ylabel("spread of honest workers / their mean")
    axes.legend(frameon=False, fontsize=8)


def draw_least(axes: Axes, done: list[Run]) -> None:
    """Per way of sending: accuracy without attackers, under the strongest attack, and bytes."""
    same = chosen(done, model="small-mlp", partition="shuffled", liars=0.4, lr=0.05, steps=400)
    everything = chosen(same, way="everything sent", attack=NONE)[0]["bytes"]
    for i, way in enumerate(SHOWN):
        tried = [chosen(same, way=way, attack=attack) for attack in ATTACKS if attack != NONE]
        least = min(worth(runs) for runs in tried if runs)
        clean = chosen(same, way=way, attack=NONE)
        share = clean[0]["bytes"] / everything
        axes.barh(i, worth(clean), color="0.85")
        axes.barh(i, least, color="C0" if way.startswith("exchange") else "0.55")
        axes.text(least + 1, i, f"{least:.0f}", va="center", weight="bold")
        axes.text(89, i, f"{share:.0%} of the bytes", va="center", fontsize=8)
    axes.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
    axes.set(title="Accuracy when 8 of 20 workers lie", xlim=(0, 112))
    axes.set_xlabel("least accuracy over attacks tried, % (light: nobody lies)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.invert_yaxis()


def main() -> None:
    """Read the arguments, measure, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=Path)
    parser.add_argument("figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    done = [json.loads(line) for line in given.record.read_text().splitlines()]
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_spread(left, spreads())
    draw_least(right, done)
    figure.savefig(given.figure, metadata={"Date": None})


if __name__ == "__main__":
    main()
