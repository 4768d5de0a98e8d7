"""The tables of the core: each function measures one and returns its rows as plain dictionaries."""

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.peak_memory import extra_bytes
from benchmarks.timing import interleaved, once
from holdfast.aggregators import (
    Aggregator,
    CoordinateMedian,
    GeometricMedian,
    MeanAroundMedian,
    TrimmedMean,
    rules,
)
from holdfast.geometry import (
    DenseRows,
    Sketch,
    columns_per_sampled,
    geometric_median,
    streaming_geometric_median,
)
from holdfast.seeds import stream

LENET = 1_163_978
RESNET18 = 11_173_962
SHAPES = [(32, LENET), (10, RESNET18), (128, LENET)]
MANY = (32, 48, 64, 96, 128, 256, 512)

Table = list[dict[str, Any]]


def sample(n: int, d: int) -> Tensor:
    """Rows with a common part as long as their spread, as gradients of one model have."""
    generator = stream(0, "benchmark", n, d)
    return torch.randn(1, d, generator=generator) + torch.randn(n, d, generator=generator)


def objective(rows: Tensor, point: Tensor) -> float:
    return float(sum((row - point).double().norm() for row in rows))


def geometric_medians() -> Table:
    """The certified geometric median: time, and the objectives that peers reach.

    Attacked: a fifth of the rows is multiplied by -100.
    """
    table = []
    cases = [(n, d, kind) for n, d in SHAPES for kind in ("clean", "attacked")]
    for n, d, kind in cases:
        rows = sample(n, d)
        if kind == "attacked":
            rows[: n // 5] *= -100
        rule = GeometricMedian()
        best = interleaved({"mean": lambda: rows.mean(0), "ours": lambda: rule(rows)}, n_rounds=15)
        result = rule.aggregate(rows)
        theirs = {
            "geom-median": peers.geom_median(),
            "byzfl": peers.byzfl("aggregators").GeometricMedian(),
            "byzpy": peers.byzpy_median(),
        }
        ours = objective(rows, result.vector)
        row = {
            "n": n,
            "d": d,
            "rows": kind,
            "mean_ms": 1e3 * best["mean"],
            "holdfast_ms": 1e3 * best["ours"],
            "holdfast_means": best["ours"] / best["mean"],
            "gap": result.gap,
            "steps": result.steps,
        }
        for name, peer in theirs.items():
            found: list[Tensor] = []
            seconds = once(lambda: found.append(peer(rows)))
            row[f"{name}_means"] = seconds / best["mean"]
            row[f"{name}_times_ours"] = seconds / best["ours"]
            row[f"{name}_excess_objective"] = objective(rows, found[0]) / ours - 1
        table.append(row)
    return table


def many_rows() -> Table:
    """The median, the radius filter and the covariance filter over n, in means.

    Attacked: a fifth of the rows is multiplied by -100. The peers run once, byzfl's covariance
    filter up to 128 rows.
    """
    table = []
    for n in MANY:
        rows = sample(n, LENET)
        for kind in ("clean", "attacked"):
            if kind == "attacked":
                rows[: n // 5] *= -100
            names = ("geometric-median", "radius-filter", "covariance-filter")
            ours = {name: rules.parse(name) for name in names}
            quick = {"mean": lambda: rows.mean(0)} | {
                name: lambda rule=ours[name]: rule(rows) for name in names[:2]
            }
            best = interleaved(quick, n_rounds=15)
            slow = {"mean": quick["mean"], names[2]: lambda: ours[names[2]](rows)}
            best |= interleaved(slow, n_rounds=3)
            theirs = {"geom-median": peers.geom_median()}
            if n <= 128:
                theirs["byzfl-covariance-filter"] = peers.byzfl("aggregators").CAF(f=n // 5)
            table.append(
                {"n": n, "d": LENET, "rows": kind, "mean_ms": 1e3 * best["mean"]}
                | {f"{name}_means": best[name] / best["mean"] for name in names}
                | {
                    f"{name}_means": once(lambda: peer(rows)) / best["mean"]
                    for name, peer in theirs.items()
                }
                | {
                    "sweeps": ours[names[0]].aggregate(rows).steps,
                    "covariance_steps": ours[names[2]].aggregate(rows).steps,
                }
            )
    return table


def where_the_time_goes() -> Table:
    """The passes of a geometric median, in means: the lower bound for a bar on the whole."""
    table = []
    for n, d in SHAPES:
        rows = sample(n, d)
        dense = DenseRows(rows)
        gram = dense.gram()
        weights, out = torch.full((n,), 1 / n, dtype=torch.float64), torch.empty(d)
        best = interleaved(
            {
                "mean": lambda: rows.mean(0),
                "gram": dense.gram,
                "solve": lambda: geometric_median(gram),
                "combine": lambda: dense.combine(weights),
                "norms": dense.squared_norms,
                "sketch": lambda: Sketch.of(dense, columns_per_sampled(n, d)),
                "sweep": lambda: dense.sweep(weights, out),
                "one product": lambda: rows @ rows.T,
            },
            n_rounds=7,
        )
        gigaflops = n * (n + 1) * d / 1e9
        table.append(
            {"n": n, "d": d}
            | {
                f"{name}_means": seconds / best["mean"]
                for name, seconds in best.items()
                if name != "mean"
            }
            | {"product_gflop_per_second": 2 * n * n * d / 1e9 / best["one product"]}
            | {
                "least_gram_means_at_that_rate": gigaflops
                / (2 * n * n * d / 1e9 / best["one product"])
                / best["mean"]
            }
        )
    return table


LENET_SIZES = (1600, 64, 102_400, 64, 1_048_576, 1024, 10_240, 10)
"""Columns of each parameter of the LeNet-style network."""


def blockwise() -> Table:
    """The geometric median of each tile of 64, over 2 % of the columns and over all columns.

    Times are in means of the whole rows.

    A group: 8 of 20 rows are equal, at s times the mean deviation from the mean of the honest rows.
    Below about s = 0.9 their row is the median of most tiles; near 0.9 it is almost the median.
    """
    n, tile, table = 20, 64, []
    rule = rules.parse(f"blockwise(tile={tile}) | geometric-median")
    # What an exchange gathers: 2 % of the tiles of each parameter.
    sent = [min(size, tile * math.ceil(0.02 * size / tile)) for size in LENET_SIZES]
    kinds: list[tuple[str, float | None]] = [("clean", None), ("flipped", None)]
    kinds += [(f"group at {s}", s) for s in (0.3, 0.6, 0.9, 1.2)]
    for kind, s in kinds:
        rows = sample(n, LENET)
        if kind == "flipped":
            rows[:8] *= -100
        if s is not None:
            mean = rows[8:].mean(0)
            deviation = (rows[8:] - mean).norm(dim=1).mean()
            rows[:8] = mean - s * deviation * mean / mean.norm()
        whole = DenseRows(list(rows.split(LENET_SIZES, dim=1)))
        starts = [sum(LENET_SIZES[:i]) for i in range(len(LENET_SIZES))]
        part = DenseRows(
            [rows[:, a : a + k].contiguous() for a, k in zip(starts, sent, strict=True)]
        )
        best = interleaved({"mean": lambda: rows.mean(0), "part": lambda: rule(part)}, n_rounds=25)
        slow = interleaved({"mean": lambda: rows.mean(0), "all": lambda: rule(whole)}, n_rounds=7)
        table.append(
            {
                "n": n,
                "d": LENET,
                "rows": kind,
                "mean_ms": 1e3 * min(best["mean"], slow["mean"]),
                "columns_sent": sum(sent),
                "part_means": best["part"] / best["mean"],
                "all_means": slow["all"] / slow["mean"],
                "gap": rule.aggregate(whole).gap,
            }
        )
    return table


def coordinate_rules() -> Table:
    """Coordinate rules in means: torch's own, ours in plain torch, ours compiled."""
    rows = sample(32, LENET)
    table: Table = []
    ours: list[Aggregator] = [CoordinateMedian(), TrimmedMean(n_bad=6), MeanAroundMedian(n_bad=6)]
    for rule in ours:
        row: dict[str, Any] = {"rule": rules.format(rule)}
        for mode in ("never", "always"):
            os.environ["HOLDFAST_COMPILE"] = mode
            rule(rows)  # compiles, if it may
            best = interleaved(
                {"mean": lambda: rows.mean(0), "ours": lambda: rule(rows)}, n_rounds=5
            )
            row["plain_means" if mode == "never" else "compiled_means"] = (
                best["ours"] / best["mean"]
            )
        table.append(row)
    os.environ["HOLDFAST_COMPILE"] = "auto"
    best = interleaved(
        {"mean": lambda: rows.mean(0), "torch.median": lambda: rows.median(0)}, n_rounds=2
    )
    table.append(
        {
            "rule": "torch.median (lower of the two middle values)",
            "plain_means": best["torch.median"] / best["mean"],
        }
    )
    return table


def against_byzfl() -> Table:
    """Every rule that byzfl also has, with the same settings, in plain torch.

    The peer runs once. `inf`: the peer ran out of memory.
    """
    os.environ["HOLDFAST_COMPILE"] = "never"
    table = []
    for n, d in SHAPES:
        rows = sample(n, d)
        for text, peer in byzfl_pairs(n).items():
            rule = rules.parse(text)
            extras: dict[str, Any] = (
                {"generator": stream(0, "buckets")} if "generator" in rule.needs else {}
            )
            best = interleaved(
                {"mean": lambda: rows.mean(0), "ours": lambda: rule(rows, **extras)}, n_rounds=2
            )
            copy = rows.clone()  # byzfl's clipping changes its input
            try:
                seconds = once(lambda: peer(copy))
            except RuntimeError as error:  # at n = 128 its mixing asks for 61 GB
                print(f"byzfl failed at {text}, n = {n}: {str(error)[:200]}")
                seconds = math.inf
            table.append(
                {
                    "n": n,
                    "d": d,
                    "rule": text,
                    "holdfast_ms": 1e3 * best["ours"],
                    "holdfast_means": best["ours"] / best["mean"],
                    "byzfl_ms": 1e3 * seconds,
                    "byzfl_times_ours": seconds / best["ours"],
                }
            )
    os.environ["HOLDFAST_COMPILE"] = "auto"
    return table


def byzfl_pairs(n: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Our short name and byzfl's object for the same rule, with a fifth of n rows bad."""
    theirs, before = peers.byzfl("aggregators"), peers.byzfl("preaggregators")
    f = n // 5

    def after(
        first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        return lambda given: second(first(given))

    return {
        "coordinate-median": theirs.Median(),
        f"trimmed-mean(n_bad={f})": theirs.TrMean(f=f),
        f"mean-around-median(n_bad={f})": theirs.Meamed(f=f),
        "geometric-median": theirs.GeometricMedian(),
        f"krum(n_bad={f})": theirs.Krum(f=f),
        f"multi-krum(n_bad={f}, n_selected={n - f})": theirs.MultiKrum(f=f),
        "centered-clipping(radius=100.0, n_steps=1)": theirs.CenteredClipping(),
        "minimum-diameter(n_bad=2)": theirs.MDA(f=2),
        f"covariance-filter(n_bad={f})": theirs.CAF(f=f),
        f"mixing(n_bad={f}) | mean": after(before.NNM(f=f), theirs.Average()),
        f"mixing(n_bad={f}) | geometric-median": after(before.NNM(f=f), theirs.GeometricMedian()),
        "bucketing(bucket_size=2) | mean": after(before.Bucketing(s=2), theirs.Average()),
        "clipping(radius=2.0) | mean": after(before.Clipping(c=2.0), theirs.Average()),
        f"clipping(n_bad={f}) | mean": after(before.ARC(f=f), theirs.Average()),
    }


GRAM_RULES = [
    "mean", "geometric-median", "medoid", "krum(n_bad=2)", "multi-krum(n_bad=2)",
    "minimum-diameter(n_bad=2)",
    "centered-clipping(radius=9.0)", "norm-filter(n_bad=2)", "norm-trim(bad_fraction=0.2)",
    "spectral-filter(n_bad=2)",
    "resilience-filter(sigma=1e9)", "covariance-filter(n_bad=2)", "radius-filter",
    "mixing(n_bad=2) | geometric-median",
    "clipping(n_bad=2) | geometric-median",
]  # fmt: skip


def memory() -> Table:
    """Peak memory of each rule in Gram space without the rows and the output, in shares of the
    rows.
    """
    table = []
    for text in GRAM_RULES:
        row: dict[str, Any] = {"rule": text}
        rule = rules.parse(text)
        for n, d in SHAPES:
            rows = sample(n, d)
            rule(rows[:, :100_000])  # libraries allocate their own buffers at first use
            extra = min(extra_bytes(lambda: rule(rows)) for _ in range(2))
            row[f"extra_share_at_n_{n}"] = max(0.0, extra - 4 * d) / (4 * n * d)
        table.append(row)
    return table


def crossover() -> Table:
    """The two algorithms for a geometric median over n, in means, to find where the solver
    switches.
    """
    table = []
    for n in (16, 20, 24, 32, 48, 64, 96, 128, 256, 512):
        rows = sample(n, 40_000_000 // n)
        dense = DenseRows(rows)

        def by_gram(dense: DenseRows = dense) -> Tensor:
            return dense.combine(geometric_median(dense.gram()).weights)

        def by_sweeps(dense: DenseRows = dense) -> object:
            return streaming_geometric_median(dense)

        weights, out = torch.full((n,), 1 / n, dtype=torch.float64), torch.empty(rows.shape[1])
        best = interleaved(
            {
                "mean": lambda: rows.mean(0),
                "gram": by_gram,
                "sweeps": by_sweeps,
                "sweep": lambda: dense.sweep(weights, out),
            },
            n_rounds=4,
        )
        table.append(
            {
                "n": n,
                "d": rows.shape[1],
                "gram_means": best["gram"] / best["mean"],
                "sweeps_means": best["sweeps"] / best["mean"],
                "rows_per_sweep": n * best["sweep"] / best["gram"],
                "certified_by_sweeps": by_sweeps() is not None,
            }
        )
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "geometric_medians": geometric_medians,
    "many_rows": many_rows,
    "where_the_time_goes": where_the_time_goes,
    "blockwise": blockwise,
    "coordinate_rules": coordinate_rules,
    "against_byzfl": against_byzfl,
    "memory": memory,
    "crossover": crossover,
}

TITLE = "Speed and memory of the core"


def bars(results: dict[str, Any]) -> Table:
    """The goals for this part of Holdfast beside the figures."""
    return [*median_bars(results), *column_bars(results), *other_bars(results)]


def at_most(what: str, limit: float, measured: float) -> dict[str, Any]:
    """The line of a goal that should not be exceeded."""
    bar = f"at most {limit:g}"
    return {"what": what, "bar": bar, "measured": measured, "met": measured <= limit}


def median_bars(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rules that read inner products."""
    for row in results.get("geometric_medians", []):
        shape = f"n = {row['n']}, d = {row['d']:,}, {row['rows']}"
        limit = 3.0 if row["d"] == RESNET18 else 4.0
        yield at_most(f"geometric median, {shape}, in means", limit, row["holdfast_means"])
    for row in results.get("many_rows", []):
        shape = f"n = {row['n']}, d = {row['d']:,}, {row['rows']}"
        limits = {"geometric-median": 4.0, "radius-filter": 2.5}
        if row["n"] == 512:
            limits["covariance-filter"] = 10.0
        for name, limit in limits.items():
            yield at_most(f"{name}, {shape}, in means", limit, row[f"{name}_means"])


def column_bars(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rules that work on columns, or on some of them."""
    for row in results.get("blockwise", []):
        for which, limit in {"part": 0.6, "all": 12.0}.items():
            columns = "2 % of the columns" if which == "part" else "all columns"
            what = f"median of each tile of 64, {columns}, {row['rows']}, in means"
            yield at_most(what, limit, row[f"{which}_means"])
    for row in results.get("coordinate_rules", []):
        if "compiled_means" in row and not row["rule"].startswith("mean-around"):
            what = f"{row['rule']}, n = 32"
            yield at_most(f"{what}, plain torch, in means", 40.0, row["plain_means"])
            yield at_most(f"{what}, compiled, in means", 20.0, row["compiled_means"])


def other_bars(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every rule beside a peer's, and its memory."""
    if "against_byzfl" in results:
        slowest = min(row["byzfl_times_ours"] for row in results["against_byzfl"])
        what = "byzfl's time over ours, least over all rules and shapes"
        yield {"what": what, "bar": "above 1", "measured": slowest, "met": slowest > 1.0}
    if "memory" in results:
        figures = [row.items() for row in results["memory"]]
        most = max(value for row in figures for key, value in row if key != "rule")
        what = "extra memory of a Gram rule, most over all rules and shapes, in rows"
        yield at_most(what, 0.15, most)


BARS = (
    "Goals, and whether they are met. A mean is limited by memory, a rule partly by arithmetic, so "
    "ratios depend on the machine: on one with slower memory the median of 32 rows took 3.7 means "
    "and the radius filter 3.1. The extra memory at n = 128 is that of the processor's matrix "
    "product; elsewhere it was 0.05. Far from their goals are the covariance filter of 512 rows, "
    "which solves hundreds of eigenproblems of that size, and medians of tiles: each is a small "
    "problem of its own, and where equal rows are almost the median, it takes many steps to certify "
    "that they are not."
)
