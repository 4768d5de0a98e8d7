"""The figures of docs/concepts: each is computed by the library, or read from committed records.

From the project's root, for some of them or for all:

    python -m examples.concept_figures docs/concepts rows certificate
    python -m examples.concept_figures docs/concepts
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from holdfast.aggregators import GeometricMedian, rules
from holdfast.geometry import DenseRows
from holdfast.lab.data import load
from holdfast.lab.models import models
from holdfast.seeds import stream
from holdfast.sources import MicroBatches, PerSample
from holdfast.threats import GaussianNoise, Huddle, InnerProduct, ScaledFlip

Batches = Callable[[int, int], tuple[Tensor, Tensor]]
"""From a number of samples and a seed to images and labels."""

RESULTS = Path(__file__).parent.parent / "docs" / "results"
HONEST, BAD, RESULT, OTHER = "#5a626d", "#c62f2f", "#2a6bd0", "#b14300"
"""Colors of honest rows, of bad rows, of what a rule returns, and of a second rule."""

FLOOR = 1e-16
"""Smaller gaps are drawn here."""


def trained(name: str, n_steps: int = 0) -> tuple[nn.Module, Batches]:
    """A model after some steps on the bundled images, and a function that draws batches."""
    data = load("fashion-mnist-slice")
    model = models[name](shape=data.shape, generator=stream(0, "model"))

    def batch(n: int, seed: int) -> tuple[Tensor, Tensor]:
        drawn = torch.randint(len(data.train), (n,), generator=stream(0, "batch", seed))
        images, labels = data.train.batch(drawn)
        return images, labels

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(n_steps):
        images, labels = batch(64, -1 - step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model, batch


def rows(figure: Figure) -> None:
    """How far rows are from the vector median when 8 of 64 samples are noise."""
    model, batch = trained("small-mlp", 50)
    images, labels = batch(64, 0)
    together, scattered = torch.arange(64) < 8, torch.arange(64) % 8 == 3
    loss = nn.CrossEntropyLoss()
    cases: list[tuple[str, Callable[[Tensor, Tensor], DenseRows], Tensor]] = [
        ("8 slices, one file is bad", MicroBatches(model, loss, n_rows=8), together),
        ("8 slices, bad samples scattered", MicroBatches(model, loss, n_rows=8), scattered),
        ("64 single samples, the same scattered", PerSample(model, loss), scattered),
    ]
    figure.set_size_inches(9, 2.9)
    for axes, (title, source, mask) in zip(figure.subplots(1, 3, sharey=True), cases, strict=True):
        spoiled, _ = GaussianNoise()(images, labels, mask, generator=stream(0, "noise"))
        made = source(spoiled, labels).matrix()
        distances = (made - GeometricMedian()(made)).norm(dim=1)
        relative = distances / distances.median()
        has_bad = mask.view(len(made), -1).any(1)
        for of, color, label in (
            (~has_bad, HONEST, "clean samples"),
            (has_bad, BAD, "bad samples"),
        ):
            at = torch.nonzero(of)[:, 0]
            axes.semilogy(
                at.numpy(), relative[at].numpy(), "o", ms=5, color=color, label=f"row with {label}"
            )
        axes.set(title=title, xlabel="row")
        axes.axhline(1.0, color="0.8", zorder=0)
    figure.axes[0].set_ylabel("distance from the median\n(1: half of the rows)")
    legend_below(figure, figure.axes[0])


def gram_space(figure: Figure) -> None:
    """Rows, their distances, and the weights of their median."""
    model, batch = trained("mlp")
    made = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=12)(*batch(12 * 32, 0)).matrix()
    mask = torch.zeros(12, dtype=torch.bool).index_fill_(0, torch.tensor([2, 6, 7]), True)
    sent = ScaledFlip(factor=3.0)(made, mask)
    measured, found = DenseRows(sent).gram(), GeometricMedian().aggregate(sent)
    figure.set_size_inches(9, 3.1)
    left, middle, right = figure.subplots(1, 3, width_ratios=[2.2, 1, 0.8])
    shown = sent[:, made.std(0).topk(300).indices.sort().values]
    limit = float(shown[~mask].abs().quantile(0.98))
    left.imshow(
        shown.numpy(), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="none"
    )
    left.set(title=f"n rows of {made.shape[1]:,} numbers\nread once", ylabel="row", xlabel="column")
    left.set_xticks([])
    middle.imshow(measured.distances.numpy(), cmap="viridis", aspect="auto", interpolation="none")
    middle.set(title="n x n distances\nall iterations", xlabel="row")
    assert found.weights is not None
    right.barh(range(12), found.weights.tolist(), color=[BAD if bad else RESULT for bad in mask])
    right.set(title="n weights\nrows read once more", xlabel="weight in the median")
    right.set_ylim(11.5, -0.5)
    for axes in (left, middle, right):
        axes.set_yticks(range(12), [f"{i + 1}" for i in range(12)], fontsize=7)
    for tick in torch.nonzero(mask)[:, 0].tolist():
        left.get_yticklabels()[tick].set_color(BAD)
    middle.set_xticks([])


def certificate(figure: Figure) -> None:
    """The certified and the true gap after every step, in three dtypes."""
    exact = torch.randn(15, 100, generator=stream(2, "rows"), dtype=torch.float64)
    exact[:5] = 4 * exact[:5] + 3
    figure.set_size_inches(9, 2.9)
    kinds = (torch.float64, torch.float32, torch.bfloat16)
    for axes, dtype in zip(figure.subplots(1, 3, sharey=True), kinds, strict=True):
        given = exact.to(dtype)
        wide = given.double()
        best = GeometricMedian(tolerance=1e-14).aggregate(wide).vector
        scale = (wide - best).norm(dim=1).sort().values[:8].sum()
        certified, true = [], []
        for steps in range(1, 8):
            found = GeometricMedian(tolerance=1e-15, max_steps=steps).aggregate(given)
            assert found.gap is not None
            certified.append(max(found.gap, FLOOR))
            above = excess(wide, found.vector.double(), best) / scale
            true.append(max(float(above), FLOOR))
        axes.semilogy(range(1, 8), certified, "o-", color=RESULT, label="gap (certified)")
        axes.semilogy(range(1, 8), true, "s--", color=HONEST, label="true gap")
        axes.set(title=str(dtype).removeprefix("torch."), xlabel="steps", xticks=range(1, 8))
        axes.grid(alpha=0.3)
    figure.axes[0].set(ylabel="above the optimum,\nrelative", ylim=(FLOOR / 3, 3))
    legend_below(figure, figure.axes[0])


def excess(rows: Tensor, point: Tensor, best: Tensor) -> Tensor:
    """How much larger the sum of distances from `point` is, without cancellation."""
    a, b = (rows - point).norm(dim=1), (rows - best).norm(dim=1)
    # a - b = (a² - b²) / (a + b), and a² - b² is an inner product.
    squares = ((point - best) * (point + best - 2 * rows)).sum(1)
    total: Tensor = (squares / (a + b)).sum()
    return total


def exchange(figure: Figure) -> None:
    """What 8 of 20 colluders do to a median of sums of T gradients."""
    model, batch = trained("small-mlp", 100)
    source = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=20)
    mask, total = torch.arange(20) < 8, torch.zeros(20, 50_890)
    waits, kept = [1, 2, 4, 8, 16, 32, 64], []
    figure.set_size_inches(9, 3.1)
    first, second, third = figure.subplots(1, 3)
    clouds = {1: first, 32: second}
    for wait in range(1, waits[-1] + 1):
        total += source(*batch(20 * 32, wait)).matrix()
        if wait not in waits:
            continue
        sent = Huddle()(total, mask, rule="geometric-median")
        found, mean = GeometricMedian()(sent), total[~mask].mean(0)
        kept.append(float(found @ mean / (mean @ mean)))
        if wait in clouds:
            draw_cloud(clouds[wait], sent, mask, found, mean)
            clouds[wait].set_title("single gradients" if wait == 1 else f"sums of {wait} gradients")
    first.set(ylabel="distance from the line\nof the honest mean")
    second.sharey(first)
    second.sharex(first)
    third.semilogx(waits, kept, "o-", color=RESULT, base=2)
    third.axhline(0, color="0.8", zorder=0)
    third.set(title="what is left of the direction", xlabel="T, gradients in a sum")
    third.set(xticks=waits, xticklabels=[str(wait) for wait in waits])
    third.set_ylabel("part along the honest mean\n(1: no attack)")
    legend_below(figure, first)


def draw_cloud(axes: Axes, sent: Tensor, mask: Tensor, found: Tensor, mean: Tensor) -> None:
    """Rows by their part along the honest mean and their distance from its line, in its length."""

    def places(points: Tensor) -> tuple[list[float], list[float]]:
        along = points @ mean / (mean @ mean)
        away = (points - along[:, None] * mean).norm(dim=1) / mean.norm()
        return along.tolist(), away.tolist()

    axes.plot(*places(sent[~mask]), "o", color=HONEST, label="honest workers", ms=5)
    axes.plot(*places(sent[mask]), "X", color=BAD, label="8 colluders", ms=8)
    axes.plot(*places(found[None]), "D", color=RESULT, label="geometric median", ms=8)
    axes.axvline(0, color="0.8", zorder=0)
    axes.set_xlabel("part along the honest mean")


def breakdown(figure: Figure) -> None:
    """How far bad rows of 21 move three rules: huge rows, and huddled ones."""
    honest = 0.5 + torch.randn(21, 1000, generator=stream(0, "rows"))
    counts = list(range(14))
    styles = {"mean": ("s:", OTHER), "radius-filter": ("D--", HONEST)}
    styles["geometric-median"] = ("o-", RESULT)
    figure.set_size_inches(9, 3.1)
    left, right = figure.subplots(1, 2)
    for name, (style, color) in styles.items():
        rule, moved, parts = rules.parse(name), [], []
        for count in counts:
            mask = torch.arange(21) < count
            mean = honest[~mask].mean(0)
            spread = (honest[~mask] - mean).norm(dim=1).mean()
            huge = rule(InnerProduct(factor=1e6)(honest, mask))
            moved.append(max(float((huge - mean).norm() / spread), 1e-3))
            parts.append(float(rule(Huddle()(honest, mask, rule=rule)) @ mean / (mean @ mean)))
        left.semilogy(counts, moved, style, color=color, label=name, ms=5)
        right.plot(counts, parts, style, color=color, ms=5)
    left.set(title="huge bad rows", ylabel="distance from the honest mean\n(1: spread of the rows)")
    right.set(title="huddled bad rows", ylabel="part along the honest mean\n(1: no bad rows)")
    right.set_ylim(-3.2, 1.3)
    for axes in (left, right):
        axes.axvspan(10.5, 13.5, color="0.92", zorder=0)
        axes.axhline(1 if axes is left else 0, color="0.8", zorder=0)
        axes.set(xlabel="bad rows of 21", xlim=(-0.5, 13.5), xticks=counts)
    right.text(12, 0.5, "a majority\nis bad", ha="center", color=HONEST)
    legend_below(figure, left)


class Panel(NamedTuple):
    """Runs of a record: one per way (by its label), without a threat and with one."""

    title: str
    record: str
    settings: dict[str, Any]
    field: str
    threat: str
    ways: dict[str, str]


LIARS = {"model": "small-mlp", "partition": "shuffled", "liars": 0.4, "lr": 0.05}
SENT = {"median": "everything sent", "momentum": "worker momentum 0.9", "exchange": "exchange, 2 %"}
THREATS = [
    Panel(
        "accident\n1 of 4 ranks times -100",
        "guard_under_faults",
        {"case": "LeNet, DDP, 4 ranks"},
        "fault",
        "scaled-flip",
        {"mean": "plain", "radius filter": "guarded"},
    ),
    Panel(
        "blunt liars\n8 of 20 times -100",
        "flower_under_attack",
        {"partition": "shuffled", "liars": 0.4, "epochs": 1},
        "attack",
        "scaled flip",
        {"mean": "FedAvg", "radius filter": "radius filter", "median": "geometric median"},
    ),
    Panel(
        "informed liars\n8 of 20, min-max",
        "exchange_under_attack",
        LIARS,
        "attack",
        "min-max",
        SENT,
    ),
    Panel(
        "optimized colluders\n8 of 20, huddle",
        "exchange_under_attack",
        LIARS,
        "attack",
        "huddle: first layer",
        SENT,
    ),
]


def threats(figure: Figure) -> None:
    """Accuracy under four kinds of threats, from three records."""
    figure.set_size_inches(9, 2.6)
    for axes, panel in zip(figure.subplots(1, 4, sharex=True), THREATS, strict=True):
        for label, way in panel.ways.items():
            wanted = panel.settings | {"way": way, panel.field: panel.threat}
            level = accuracy(panel.record, wanted)
            color = {"mean": OTHER, "exchange": RESULT}.get(label, HONEST)
            axes.barh(label, level, color=color, height=0.6)
            inside = level > 20
            place, color = (level - 2, "white") if inside else (level + 2, "black")
            align = "right" if inside else "left"
            axes.text(place, label, f"{level:.0f}", va="center", ha=align, color=color)
        unthreatened = panel.settings | {
            "way": next(iter(panel.ways.values())),
            panel.field: "none",
        }
        axes.axvline(accuracy(panel.record, unthreatened), color="0.6", ls=":")
        axes.set_title(panel.title, fontsize=10)
        axes.set(xlim=(0, 105), xticks=[0, 50, 100], ylim=(2.6, -0.6), xlabel="accuracy, %")
        axes.spines[["top", "right"]].set_visible(False)


def accuracy(record: str, wanted: dict[str, Any]) -> float:
    """The accuracy in percent of the runs of a record with these settings, over all seeds."""
    lines = (RESULTS / f"{record}.jsonl").read_text().splitlines()
    found = [run for run in map(json.loads, lines) if wanted.items() <= run.items()]
    return fmean(float(run["accuracy"]) for run in found)


def guard(figure: Figure) -> None:
    """The Gram matrices of four shards, their sum, and the weights that it gives."""
    model, batch = trained("small-mlp", 20)
    made = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=4)(*batch(4 * 64, 0)).matrix()
    sent = ScaledFlip(factor=5.0)(made, torch.tensor([False, False, True, False]))
    shards = [shard @ shard.T for shard in torch.tensor_split(sent.double(), 4, dim=1)]
    grams = [*shards, torch.stack(shards).sum(0)]
    limit = float(grams[-1].abs().max())
    figure.set_size_inches(9, 1.8)
    panels = figure.subplots(1, 6, width_ratios=[1, 1, 1, 1, 1, 1.1])
    names = [*(f"rank {i}'s columns" for i in range(4)), "sum, on all ranks"]
    for axes, gram, name, sign in zip(panels, grams, names, [*"+++=", ""], strict=False):
        scale = mpl.colors.SymLogNorm(limit / 1e3, vmin=-limit, vmax=limit)
        axes.imshow(gram.numpy(), cmap="RdBu", norm=scale, interpolation="none")
        axes.set_title(name, fontsize=9)
        axes.set(xticks=range(4), yticks=range(4))
        axes.text(1.17, 0.5, sign, transform=axes.transAxes, ha="center", va="center", size=16)
    found = rules.parse("radius-filter").weights_from_gram(grams[-1])
    panels[-1].bar(range(4), found.tolist(), color=[BAD if i == 2 else RESULT for i in range(4)])
    panels[-1].set_title("weights of ranks", fontsize=9)
    panels[-1].set(xticks=range(4), xlabel="rank", ylim=(0, 0.5), box_aspect=1)


def federated(figure: Figure) -> None:
    """Accuracy over rounds under two threats, from the record of strategies in Flower."""
    lines = (RESULTS / "flower_under_attack.jsonl").read_text().splitlines()
    done = [run for run in map(json.loads, lines) if run["partition"] == "shuffled"]
    curves = {(run["attack"], run["way"]): run["curve"] for run in done if run["curve"]}
    shown = {
        "FedAvg": ("s:", OTHER, "FedAvg"),
        "geometric median": ("D--", HONEST, "RobustStrategy, geometric median"),
        "radius filter": ("o-", RESULT, "RobustStrategy, default rule"),
    }
    titles = {
        "none": "nothing wrong",
        "scaled flip": "8 of 20 clients send -100 times their update",
        "small site": "one small site claims many examples",
    }
    figure.set_size_inches(9, 2.9)
    for axes, (attack, title) in zip(
        figure.subplots(1, 3, sharey=True), titles.items(), strict=True
    ):
        for way, (style, color, label) in shown.items():
            curve = curves[attack, way]
            axes.plot(range(5, 5 * len(curve) + 1, 5), curve, style, color=color, label=label, ms=4)
        axes.set_title(title, fontsize=9)
        axes.set(xlabel="round", ylim=(0, 90))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("test accuracy, %")
    legend_below(figure, figure.axes[0])


def legend_below(figure: Figure, axes: Axes, n_columns: int = 3) -> None:
    """One legend for all panels, from one of them."""
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=n_columns, frameon=False, fontsize=9)


FIGURES: dict[str, Callable[[Figure], None]] = {
    "rows": rows,
    "gram-space": gram_space,
    "certificate": certificate,
    "exchange": exchange,
    "breakdown": breakdown,
    "threats": threats,
    "guard": guard,
    "federated": federated,
}


def draw(name: str, folder: Path) -> None:
    """Draw one figure as `folder`/`name`.svg; the same bytes on the same machine."""
    with mpl.rc_context({"svg.hashsalt": "holdfast", "axes.titlesize": 10, "font.size": 9}):
        figure = Figure(layout="constrained")
        FIGURES[name](figure)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Read the arguments and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FIGURES)}; all by default")
    given = parser.parse_args()
    if unknown := set(given.names) - set(FIGURES):
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for name in given.names or FIGURES:
        draw(name, given.folder)


if __name__ == "__main__":
    main()
