"""The tables of BGMD: each function measures one and returns its rows as plain dictionaries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.core import LENET, SHAPES, Table, sample
from benchmarks.peak_memory import extra_bytes
from benchmarks.timing import interleaved
from holdfast import bgmd, preset
from holdfast.aggregators import CallContext, GeometricMedian, Sketched
from holdfast.geometry import DenseRows, SketchedRows
from holdfast.robust_step import Step, deliver
from holdfast.seeds import stream
from holdfast.selectors import NormSampling, TopNorm, row_norms

TITLE = "Speed and memory of BGMD"
LR = 0.1
MANY = [(n, LENET) for n in (64, 128, 256, 512)]


def attacked(rows: Tensor, kind: str) -> Tensor:
    """The rows as they are, or with a fifth of them multiplied by -100."""
    if kind == "attacked":
        rows[: len(rows) // 5] *= -100
    return rows


def warmed(step: Step, rows: Tensor) -> Callable[[], object]:
    """The step on these rows, once something is carried."""
    step(rows, lr=LR)
    return lambda: step(rows, lr=LR)


def bgmd_steps() -> Table:
    """A whole step (sketched median, delivery of a block of 10 %) in means of the rows.

    `attacked`: a fifth of the rows is multiplied by -100.
    """
    table = []
    for n, d in [*SHAPES, *MANY]:
        for kind in ("clean", "attacked"):
            rows = attacked(sample(n, d), kind)
            sketched, generator = Sketched(rule=GeometricMedian()), stream(0, "sketch")
            filtered = bgmd(fraction=0.1, rule="sketched | covariance-filter")
            best = interleaved(
                {
                    "mean": lambda: rows.mean(0),
                    "exact": lambda: GeometricMedian()(rows),
                    "bgmd": warmed(bgmd(fraction=0.1), rows),
                    "sketched median": lambda: sketched(rows, generator=generator),
                    "bgmd, covariance filter": warmed(filtered, rows),
                },
                n_rounds=8 if n < 256 else 4,
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
    """The time of each part of a step, in means of the rows. Norms and sum read all rows."""
    table = []
    for n, d in [*SHAPES, *MANY]:
        plain = sample(n, d)
        rows, selector = DenseRows(plain), NormSampling(fraction=min(1.0, 2**14 / d))
        tiling, generator = selector.tiling(rows.sections), stream(0, "draw")
        norms, lengths = row_norms(rows, tiling, capped=True)
        block = selector.select(tiling, norms, step=0, generator=generator)
        sketch = SketchedRows(rows, block, lengths)
        weights, total = torch.full((n,), 1 / n, dtype=torch.float64), sample(1, d)[0]
        top = TopNorm(fraction=0.1, tile=1)
        best = interleaved(
            {
                "mean": lambda: plain.mean(0),
                "norms": lambda: row_norms(rows, tiling, capped=True),
                "draw": lambda: selector.select(tiling, norms, step=0, generator=generator),
                "gather": lambda: SketchedRows(rows, block, lengths),
                "products and weights": lambda: GeometricMedian()._solve(
                    sketch.gram(), CallContext()
                ),
                "weighted sum": lambda: rows.combine(weights),
                "delivery": lambda: deliver(total.clone(), top, (d,), step=0, generator=generator),
            },
            n_rounds=5,
        )
        found = {f"{name}_means": time / best["mean"] for name, time in best.items()}
        table.append({"n": n, "d": d} | found)
        del table[-1]["mean_means"]
    return table


def when_a_block_pays() -> Table:
    """Time over the number of rows, in means, with about 40 million entries, clean and attacked."""
    table = []
    for n in (8, 16, 32, 64, 128, 256, 512):
        row: dict[str, Any] = {"n": n, "d": 40_000_000 // n}
        for kind in ("clean", "attacked"):
            rows = attacked(sample(n, row["d"]), kind)
            sketched, generator = Sketched(rule=GeometricMedian()), stream(0, "sketch")
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
    """Lemma 2 at n = 32: the gain of aggregating a block instead of whole rows, over its share.

    `row by row` is the lemma's own setting: the same iterative median (geom-median's) on whole rows
    and on the block, selection included. `exact over step` is our exact median of whole rows over
    our whole step: where the exact median costs a few means, there is little left to gain.
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

        def select_and_solve(step: Step = step, dense: DenseRows = dense) -> Tensor:
            tiling = step.selector.tiling(dense.sections)
            norms, _ = row_norms(dense, tiling, capped=False)
            block = step.selector.select(tiling, norms, step=0, generator=step.generator)
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
    """Peak memory of a step without the rows, the direction and the step's memory, in rows."""
    table = []
    for n, d in SHAPES:
        rows = sample(n, d)
        step = bgmd(fraction=0.1)
        for _ in range(2):
            step(rows, lr=LR)
        extra = min(extra_bytes(lambda: step(rows, lr=LR)) for _ in range(3))
        # What is carried is replaced and a direction returned: one vector each, before and after.
        table.append({"n": n, "d": d, "extra_share": max(0.0, extra - 4 * d) / (4 * n * d)})
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "bgmd_steps": bgmd_steps,
    "where_a_step_goes": where_a_step_goes,
    "when_a_block_pays": when_a_block_pays,
    "choice_of_k": choice_of_k,
    "step_memory": step_memory,
}


def bars(results: dict[str, Any]) -> Table:
    """The goals for BGMD beside the figures."""
    table: Table = []
    for row in results.get("bgmd_steps", []):
        what = f"BGMD, n = {row['n']}, d = {row['d']:,}, {row['rows']}, in means"
        found = row["bgmd_means"]
        table.append({"what": what, "bar": "at most 3.2", "measured": found, "met": found <= 3.2})
    for row in results.get("step_memory", []):
        what = f"extra memory of a step, n = {row['n']}, d = {row['d']:,}, in rows"
        found = row["extra_share"]
        table.append({"what": what, "bar": "at most 0.15", "measured": found, "met": found <= 0.15})
    return table


BARS = "Goals, and whether they are met."


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
        "sketched": "sketched median",
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
