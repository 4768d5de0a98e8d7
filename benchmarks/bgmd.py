"""The tables of BGMD: each function measures one and returns its rows as plain dictionaries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from holdfast.memory import AugmentedRows
from torch import Tensor

from benchmarks import peers
from benchmarks.core import LENET, SHAPES, Table, sample
from benchmarks.peak_memory import extra_bytes
from benchmarks.timing import interleaved
from holdfast import RobustStep, SketchedGeometricMedian, bgmd, preset
from holdfast.aggregators import CovarianceFilter, GeometricMedian
from holdfast.geometry import DenseRows
from holdfast.robust_step import SketchedRows
from holdfast.seeds import stream

TITLE = "Speed and memory of BGMD"
LR = 0.1
MANY = (512, LENET // 2)
"""512 rows; more columns would not fit the memory of a small machine twice."""


def attacked(rows: Tensor, kind: str) -> Tensor:
    """The rows as they are, or with a fifth of them multiplied by -100."""
    if kind == "attacked":
        rows[: len(rows) // 5] *= -100
    return rows


def warmed(step: RobustStep, rows: Tensor) -> Callable[[], object]:
    """The step on these rows, once its memory holds something."""
    step(rows, lr=LR)
    return lambda: step(rows, lr=LR)


def bgmd_steps() -> Table:
    """A whole step (scores, block of 10 %, weights, direction, memory) in means, in plain torch, beside the exact median of whole rows.

    `attacked`: a fifth of the rows is multiplied by -100. No kernel of BGMD is compiled: these are its figures with and without a compiler.
    """
    table = []
    for n, d in [*SHAPES, MANY]:
        for kind in ("clean", "attacked"):
            rows = attacked(sample(n, d), kind)
            sketched, generator = SketchedGeometricMedian(fraction=0.1), stream(0, "sketch")
            best = interleaved(
                {
                    "mean": lambda: rows.mean(0),
                    "exact": lambda: GeometricMedian()(rows),
                    "bgmd": warmed(bgmd(fraction=0.1), rows),
                    "sketched median": lambda: sketched(rows, generator=generator),
                    "bgmd, covariance filter": warmed(
                        bgmd(fraction=0.1, rule=CovarianceFilter()), rows
                    ),
                },
                n_rounds=8 if n < 512 else 4,
            )
            table.append({"n": n, "d": d, "rows": kind, "mean_ms": 1e3 * best["mean"]})
            table[-1] |= {
                f"{name}_means": seconds / best["mean"]
                for name, seconds in best.items()
                if name != "mean"
            }
            table[-1]["bgmd_over_exact"] = best["bgmd"] / best["exact"]
    return table


def where_a_step_goes() -> Table:
    """The parts of a step, in means. Norms, products and sum each read all rows; these three passes are what a block cannot avoid."""
    table = []
    for n, d in [*SHAPES, MANY]:
        plain = sample(n, d)
        rows = DenseRows(plain)
        step = bgmd(fraction=0.1)
        tiling = step(rows, lr=LR).block.tiling
        carried = step.state_dict()["carried"]
        augmented = AugmentedRows(rows, carried, 1 / LR)
        scores = augmented.scores(tiling, capped=True)
        weights, generator = torch.full((n,), 1 / n, dtype=torch.float64), stream(0, "draw")
        block = step.selector.select(tiling, scores, step=1, generator=generator)
        best = interleaved(
            {
                "mean": lambda: plain.mean(0),
                "norms of tiles": lambda: rows.tile_norms(block.tiling),
                "products with memory": lambda: rows.tile_products(block.tiling, weights, carried),
                "draw": lambda: step.selector.select(
                    block.tiling, scores, step=0, generator=generator
                ),
                "gather block": lambda: SketchedRows(augmented, block),
                "gather, weights and sum": lambda: GeometricMedian().aggregate(
                    SketchedRows(augmented, block)
                ),
                "weighted sum": lambda: augmented.combine(weights),
            },
            n_rounds=5,
        )
        table.append(
            {"n": n, "d": d}
            | {
                f"{name}_means": time / best["mean"]
                for name, time in best.items()
                if name != "mean"
            }
        )
    return table


def granularity() -> Table:
    """Tiles of several widths at n = 32, in means: single columns touch a cache line each, tiles of 64 are gathered at the speed of memory."""
    rows = sample(32, LENET)
    table = []
    for tile in (1, 4, 16, 64, 256, 1024):
        step = bgmd(fraction=0.1, tile=tile)
        run = warmed(step, rows)
        block, dense = step(rows, lr=LR).block, DenseRows(rows)
        best = interleaved(
            {
                "mean": lambda: rows.mean(0),
                "step": run,
                "gather": lambda: dense.tiles(block.tiling, block.tiles),
            },
            n_rounds=4,
        )
        table.append(
            {
                "tile": tile,
                "step_means": best["step"] / best["mean"],
                "gather_means": best["gather"] / best["mean"],
            }
        )
    return table


def when_a_block_pays() -> Table:
    """Over the number of rows, in means, with about 40 million entries: the exact median, BGMD and the sketched median, clean and attacked."""
    table = []
    for n in (8, 16, 32, 64, 128, 256, 512):
        row: dict[str, Any] = {"n": n, "d": 40_000_000 // n}
        for kind in ("clean", "attacked"):
            rows = attacked(sample(n, row["d"]), kind)
            sketched, generator = SketchedGeometricMedian(fraction=0.1), stream(0, "sketch")
            best = interleaved(
                {
                    "mean": lambda: rows.mean(0),
                    "exact": lambda: GeometricMedian()(rows),
                    "gram": lambda: DenseRows(rows).gram(),
                    "bgmd": warmed(bgmd(fraction=0.1), rows),
                    "sketched": lambda: sketched(rows, generator=generator),
                },
                n_rounds=5,
            )
            row |= {
                f"{name}_{kind}_means": seconds / best["mean"]
                for name, seconds in best.items()
                if name != "mean"
            }
        table.append(row)
    return table


def choice_of_k() -> Table:
    """Lemma 2, measured at n = 32: how much faster an aggregation of a block is than one of whole rows, over the share of columns.

    `row by row` is the lemma's own setting: the same iterative median (geom-median's) on whole rows and on the block, selection included. `exact over
    step` is our exact median of whole rows over our whole step: where the exact median costs a few means, there is little left to gain.
    """
    rows = sample(32, LENET)
    median = peers.geom_median()
    whole = interleaved(
        {"row by row": lambda: median(rows), "exact": lambda: GeometricMedian()(rows)}, n_rounds=2
    )
    table = []
    for fraction in (0.01, 0.03, 0.1, 0.3, 1.0):
        step = preset(f"bgmd-paper(fraction={fraction}, tile=64)")
        dense = DenseRows(rows)

        def select_and_solve(step: RobustStep = step, dense: DenseRows = dense) -> Tensor:
            tiling = step.selector.tiling(dense.sections)
            scores = AugmentedRows(dense).scores(tiling, capped=False)
            block = step.selector.select(tiling, scores, step=0, generator=step.generator)
            return median(dense.tiles(tiling, block.tiles))

        best = interleaved(
            {"row by row": select_and_solve, "step": warmed(bgmd(fraction=fraction), rows)},
            n_rounds=2,
        )
        table.append(
            {
                "fraction": fraction,
                "row_by_row_speedup": whole["row by row"] / best["row by row"],
                "exact_over_step": whole["exact"] / best["step"],
            }
        )
    return table


def step_memory() -> Table:
    """Peak memory of a step beyond the rows, the direction and the vector of memory, as a share of the rows."""
    table = []
    for n, d in SHAPES:
        rows = sample(n, d)
        step = bgmd(fraction=0.1)
        for _ in range(2):
            step(rows, lr=LR)
        extra = min(extra_bytes(lambda: step(rows, lr=LR)) for _ in range(3))
        # The step replaces its memory and hands out a direction: one vector of each stands before and after.
        table.append({"n": n, "d": d, "extra_share": max(0.0, extra - 4 * d) / (4 * n * d)})
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "bgmd_steps": bgmd_steps,
    "where_a_step_goes": where_a_step_goes,
    "granularity": granularity,
    "when_a_block_pays": when_a_block_pays,
    "choice_of_k": choice_of_k,
    "step_memory": step_memory,
}


def bars(results: dict[str, Any]) -> Table:
    """The goals for BGMD beside the figures."""
    table: Table = []

    def add(what: str, bar: str, measured: float, met: bool) -> None:
        table.append({"what": what, "bar": bar, "measured": measured, "met": met})

    for row in results.get("bgmd_steps", []):
        if row["rows"] == "clean" and row["n"] < 512:
            where = f"n = {row['n']}, d = {row['d']:,}"
            add(
                f"BGMD, {where}, plain torch, in means",
                "at most 8",
                row["bgmd_means"],
                row["bgmd_means"] <= 8,
            )
            add(
                f"BGMD, {where}, where a compiler is available, in means",
                "at most 5",
                row["bgmd_means"],
                row["bgmd_means"] <= 5,
            )
        if row["n"] >= 512:
            what = f"BGMD over the exact median, n = {row['n']}, {row['rows']}"
            add(what, "at most 0.33", row["bgmd_over_exact"], row["bgmd_over_exact"] <= 1 / 3)
    for row in results.get("step_memory", []):
        what = f"extra memory of a step, n = {row['n']}, d = {row['d']:,}, in rows"
        add(what, "at most 0.15", row["extra_share"], row["extra_share"] <= 0.15)
    return table


BARS = (
    "Goals and figures. At 512 rows a step costs about as much as the exact median (less when rows are bad), not a third of it: that median sweeps over the rows when they are "
    "many, and three to five sweeps cost about as much as the three passes over all rows that a block step needs (norms of tiles, products with the memory, "
    "the weighted sum; see *Where a step goes*)."
)


def draw(results: dict[str, Any], folder: Path) -> None:
    """The figure over n, if its table was measured."""
    if "when_a_block_pays" not in results:
        return
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "holdfast"
    table = results["when_a_block_pays"]
    n = [row["n"] for row in table]
    lines = {
        "gram": "Gram matrix alone",
        "exact": "exact median",
        "bgmd": "BGMD, block of 10 %",
        "sketched": "sketched median, 10 %",
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, kind in zip(axes, ("clean", "attacked"), strict=True):
        for name, label in lines.items():
            style = {"linestyle": ":", "color": "grey"} if name == "gram" else {"marker": "o"}
            axis.plot(n, [row[f"{name}_{kind}_means"] for row in table], label=label, **style)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="rows n",
            title="clean rows" if kind == "clean" else "a fifth times -100",
        )
        axis.set_xticks(n, [str(value) for value in n])
        axis.set_yticks([2, 3, 5, 10, 20, 30], ["2", "3", "5", "10", "20", "30"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("time in means of the rows")
    axes[0].legend()
    figure.savefig(folder / "when_a_block_pays.svg", metadata={"Date": None})
    plt.close(figure)
