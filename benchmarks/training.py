"""The tables of whole training steps: each function measures one and returns its rows."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchjd.autogram import Engine

from benchmarks.core import Table
from benchmarks.peak_memory import fresh_peak_bytes
from benchmarks.timing import interleaved
from holdfast import RobustStep, bgmd
from holdfast.aggregators import GeometricMedian, rules
from holdfast.geometry import DenseRows, geometric_median
from holdfast.lab.models import lenet, mlp, resnet_18
from holdfast.seeds import stream
from holdfast.sources import LayerGrams, MicroBatches, PerSample

TITLE = "Speed and memory of training steps"
LR = 0.01

Step = Callable[[], object]


def batch(
    n: int, *shape: int, memory_format: torch.memory_format = torch.channels_last
) -> tuple[Tensor, Tensor]:
    """Random images and labels; their content does not affect the time."""
    generator = stream(0, "batch")
    images = torch.randn(n, *shape, generator=generator).to(memory_format=memory_format)
    return images, torch.randint(0, 10, (n,), generator=generator)


def model_of(
    build: Callable[..., nn.Module], memory_format: torch.memory_format = torch.channels_last
) -> nn.Module:
    return build(generator=stream(0, "model")).to(memory_format=memory_format)  # type: ignore[call-overload, no-any-return]


def plain(model: nn.Module, x: Tensor, y: Tensor, n_slices: int = 1) -> Step:
    """An ordinary SGD step, of the whole batch at once or with gradients accumulated over
    slices.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def step() -> None:
        optimizer.zero_grad()
        for part, labels in zip(x.chunk(n_slices), y.chunk(n_slices), strict=True):
            torch.autograd.backward(cross_entropy(model(part), labels) / n_slices)
        optimizer.step()

    return step


def robust(
    model: nn.Module, source: Callable[..., Any], step: RobustStep, x: Tensor, y: Tensor
) -> Step:
    """Rows, aggregation and the optimizer's step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def run() -> None:
        optimizer.zero_grad()
        step.backward(source(x, y), lr=LR)
        optimizer.step()

    return run


STEPS: dict[str, Callable[[], RobustStep]] = {
    "radius filter": lambda: RobustStep("radius-filter"),
    "geometric median": lambda: RobustStep("geometric-median"),
    "covariance filter": lambda: RobustStep("covariance-filter"),
    "bgmd": lambda: bgmd(fraction=0.1),
}


def small_model_steps() -> Table:
    """A perceptron with one hidden layer of 128 units: source, rule and SGD, in plain steps."""
    table = []
    for n_samples, n_rows in ((256, 16), (512, 32)):
        model = model_of(mlp, torch.contiguous_format)
        x, y = batch(n_samples, 1, 28, 28, memory_format=torch.contiguous_format)
        source = MicroBatches(model, cross_entropy, n_rows=n_rows)
        candidates: dict[str, Step] = {
            name: robust(model, source, make(), x, y) for name, make in STEPS.items()
        }
        candidates |= {"plain": plain(model, x, y), "rows alone": partial(source, x, y)}
        best = interleaved(candidates, n_rounds=40)
        for name in ("rows alone", *STEPS):
            table.append({"samples": n_samples, "rows": n_rows, "step": name})
            table[-1] |= {"ms": 1e3 * best[name], "over_plain": best[name] / best["plain"]}
    return table


def micro_batch_steps() -> Table:
    """LeNet, 32 rows of 64 images: rows, aggregation and optimizer, over a plain SGD step.

    `plain` passes the 2,048 images at once. `plain in slices` accumulates gradients over 32 slices
    of 64, which are the passes that the rows need; it is faster here, because activations stay in
    the cache. There is a ratio to each of them.
    """
    table = []
    for name, memory_format in (
        ("channels_last", torch.channels_last),
        ("contiguous", torch.contiguous_format),
    ):
        model = model_of(lenet, memory_format)
        x, y = batch(2048, 1, 28, 28, memory_format=memory_format)
        source = MicroBatches(model, cross_entropy, n_rows=32)
        best = interleaved(
            {
                "plain": plain(model, x, y),
                "plain in slices": plain(model, x, y, n_slices=32),
                "rows alone": lambda: source(x, y),
            }
            | {name: robust(model, source, make(), x, y) for name, make in STEPS.items()},
            n_rounds=5,
        )
        for candidate in ("rows alone", *STEPS):
            table.append(
                {
                    "memory_format": name,
                    "step": candidate,
                    "seconds": best[candidate],
                    "images_per_second": 2048 / best[candidate],
                    "over_plain": best[candidate] / best["plain"],
                    "over_plain_in_slices": best[candidate] / best["plain in slices"],
                    "over_rows_alone": best[candidate] / best["rows alone"],
                }
            )
    return table


def torchjd_step(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """The Gram matrix by TorchJD's engine, our weights, and a backward pass of the weighted
    losses.
    """
    engine = Engine(model, batch_dim=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def step() -> None:
        optimizer.zero_grad()
        losses = cross_entropy(model(x), y, reduction="none")
        # Rows with these inner products: all that the rule needs to know.
        values, vectors = torch.linalg.eigh(engine.compute_gramian(losses).double())
        weights = geometric_median(DenseRows(vectors * values.clamp(min=0).sqrt()).gram()).weights
        torch.autograd.backward(losses, weights.to(losses))
        optimizer.step()

    return step


def per_sample_candidate(name: str, n: int = 256) -> Step:
    """One way to make a step from single samples, on a LeNet of its own."""
    model = model_of(lenet)
    x, y = batch(n, 1, 28, 28)
    if name == "plain":
        return plain(model, x, y)
    if name == "torchjd":
        return torchjd_step(model, x, y)
    source = (
        LayerGrams(model, cross_entropy)
        if name == "layer grams"
        else PerSample(model, cross_entropy)
    )
    return robust(model, source, RobustStep(GeometricMedian()), x, y)


def per_sample_steps() -> Table:
    """LeNet, the geometric median of 256 single samples, over a plain SGD step on the same batch.

    Memory is the peak beyond that of the plain step.

    `layer grams` never forms the rows; `explicit rows` does (`PerSample`); `torchjd` is the Gram
    matrix of TorchJD's generic engine with our weights. The matrix of rows would take 1.19 GB.
    """
    names = ("plain", "layer grams", "explicit rows", "torchjd")
    fast = interleaved({name: per_sample_candidate(name) for name in names[:2]}, n_rounds=8)
    slow = interleaved(
        {name: per_sample_candidate(name) for name in ("plain", *names[2:])}, n_rounds=2
    )
    peaks = {
        name: fresh_peak_bytes("benchmarks.training", "per_sample_candidate", name)
        for name in names
    }
    table = []
    for name in names[1:]:
        best = fast if name in fast else slow
        table.append(
            {
                "way": name,
                "seconds": best[name],
                "over_plain": best[name] / best["plain"],
                "extra_mb": max(0, peaks[name] - peaks["plain"]) / 1e6,
            }
        )
    return table


def where_a_per_sample_step_goes() -> Table:
    """The parts of a step from layer Grams, 256 samples, over the plain step."""
    model = model_of(lenet)
    x, y = batch(256, 1, 28, 28)
    source = LayerGrams(model, cross_entropy)
    rows = source(x, y)
    gram = rows.gram()
    weights = geometric_median(gram).weights
    best = interleaved(
        {
            "plain": plain(model, x, y),
            "forward and backward to the layers' outputs": lambda: source(x, y),
            "Gram matrix": lambda: rows.gram(),
            "weights": lambda: geometric_median(gram),
            "weighted sum of gradients": lambda: rows.combine(weights),
        },
        n_rounds=8,
    )
    return [
        {"part": name, "over_plain": seconds / best["plain"]}
        for name, seconds in best.items()
        if name != "plain"
    ]


def samples_and_slices() -> Table:
    """LeNet, a batch of 128 as 16 slices and as single samples, over a plain step.

    The rules are those of `examples/samples_against_slices.py`.
    """
    model = model_of(lenet)
    x, y = batch(128, 1, 28, 28)
    ways = [("slices", "geometric-median"), ("samples", "geometric-median")]
    ways += [("samples", "clipping(n_bad=51) | mean"), ("samples", "norm-filter(n_bad=51)")]
    candidates = {"plain": plain(model, x, y)}
    for rows, rule in ways:
        source = (
            LayerGrams(model, cross_entropy)
            if rows == "samples"
            else MicroBatches(model, cross_entropy, n_rows=16)
        )
        candidates[f"{rows}, {rule}"] = robust(model, source, RobustStep(rules.parse(rule)), x, y)
    best = interleaved(candidates, n_rounds=10)
    return [
        {"rows_and_rule": name, "over_plain": seconds / best["plain"]}
        for name, seconds in best.items()
        if name != "plain"
    ]


def resnet_candidate(name: str) -> Step:
    """A step of ResNet-18 on 160 images, plain (of 16 images at a time) or from 10 rows of 16."""
    model = model_of(resnet_18)
    x, y = batch(160, 3, 32, 32)
    if name == "plain":
        return plain(model, x, y, n_slices=10)
    step = bgmd(fraction=0.1) if name == "bgmd" else RobustStep(GeometricMedian())
    return robust(model, MicroBatches(model, cross_entropy, n_rows=10), step, x, y)


def resnet_memory() -> Table:
    """ResNet-18, 10 rows of 16 images: peak memory of a step, in shares of the rows.

    The rows and the memory of a plain step on the same slices are subtracted.

    BGMD's memory, one vector, and its direction count as extra here. The table counts memory in
    use: the C library's allocator is set to return freed memory at once. By default it keeps some,
    and the process grows by more than this.
    """
    names, rows = ("plain", "geometric median", "bgmd"), 10 * 11_173_962 * 4
    peaks = {
        name: fresh_peak_bytes("benchmarks.training", "resnet_candidate", name) for name in names
    }
    return [
        {
            "step": name,
            "rows_mb": rows / 1e6,
            "plain_peak_mb": peaks["plain"] / 1e6,
            "extra_mb": (peaks[name] - peaks["plain"] - rows) / 1e6,
            "extra_share": max(0.0, (peaks[name] - peaks["plain"] - rows) / rows),
        }
        for name in names[1:]
    ]


def loop_or_vmap() -> Table:
    """Rows of 20 slices of 32 images by a loop and by `vectorized=True`.

    The overhead of the loop matters only for small models.
    """
    table = []
    small = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    for name, model in (("perceptron of 25,450 parameters", small), ("LeNet", model_of(lenet))):
        x, y = batch(640, 1, 28, 28)
        loop, vectorized = (
            MicroBatches(model, cross_entropy, n_rows=20, vectorized=flag) for flag in (False, True)
        )
        best = interleaved(
            {"loop": lambda: loop(x, y), "vectorized": lambda: vectorized(x, y)}, n_rounds=4
        )
        table.append(
            {
                "model": name,
                "loop_ms": 1e3 * best["loop"],
                "vectorized_ms": 1e3 * best["vectorized"],
            }
        )
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "small_model_steps": small_model_steps,
    "micro_batch_steps": micro_batch_steps,
    "per_sample_steps": per_sample_steps,
    "where_a_per_sample_step_goes": where_a_per_sample_step_goes,
    "samples_and_slices": samples_and_slices,
    "resnet_memory": resnet_memory,
    "loop_or_vmap": loop_or_vmap,
}


def bars(results: dict[str, Any]) -> Table:
    """The goals for training steps beside the figures."""
    table: Table = []

    def add(what: str, bar: str, measured: float, met: bool) -> None:
        table.append({"what": what, "bar": bar, "measured": measured, "met": met})

    for row in results.get("micro_batch_steps", []):
        if row["memory_format"] == "channels_last" and row["step"] != "rows alone":
            ratio = row["over_rows_alone"]
            what = f"{row['step']}, LeNet, 32 rows of 64, over the same passes without a rule"
            add(what, "at most 1.05", ratio, ratio <= 1.05)
    for row in results.get("small_model_steps", []):
        if row["samples"] == 256 and row["step"] != "rows alone":
            what = f"{row['step']}, perceptron, 16 rows of 16, over plain"
            add(what, "at most 6", row["over_plain"], row["over_plain"] <= 6)
    for row in results.get("per_sample_steps", []):
        if row["way"] == "layer grams":
            add(
                "geometric median of 256 samples, LeNet, over plain",
                "at most 2",
                row["over_plain"],
                row["over_plain"] <= 2,
            )
    for row in results.get("resnet_memory", []):
        what = f"{row['step']}, ResNet-18, 10 rows of 16, extra memory in rows"
        add(what, "at most 0.15", row["extra_share"], row["extra_share"] <= 0.15)
    return table


BARS = (
    "Goals, and whether they are met. A plain step is an ordinary SGD step with the same batch and "
    "memory format."
)
