"""The effect of one bad row of 20 on BGMD through what it carries: the paper's memory and ours.

This draws the figure of docs/concepts/delivery.md:

    python examples/memory_under_attack.py docs/concepts/delivery.svg
"""

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from holdfast import preset
from holdfast.seeds import stream

N_ROWS, D, LR = 20, 2000, 0.1


def rows_at(t: int, n_bad: int, size: float) -> Tensor:
    """A gradient of length 1 with as much noise in every row; bad rows are times -`size`."""
    truth = torch.randn(1, D, generator=stream(0, "truth")) / D**0.5
    rows: Tensor = truth + torch.randn(N_ROWS, D, generator=stream(0, "rows", t)) / D**0.5
    rows[:n_bad] *= -size
    return rows


def directions(name: str, n_bad: int, size: float, n_steps: int) -> list[float]:
    """The norm of the direction at every step, with this preset."""
    step = preset(f"{name}(fraction=0.1)")
    return [float(step(rows_at(t, n_bad, size), lr=LR).direction.norm()) for t in range(n_steps)]


LINES: dict[str, tuple[str, int, str]] = {
    "mean of rows, clean": ("bgmd-paper", 0, ":"),
    "mean of rows, 1 bad row of 20": ("bgmd-paper", 1, "-"),
    "aggregate, clean": ("bgmd", 0, ":"),
    "aggregate, 1 bad row of 20": ("bgmd", 1, "-"),
    "aggregate, 9 bad rows of 20": ("bgmd", 9, "--"),
}


def draw(path: Path, n_steps: int = 80) -> None:
    """The direction over steps at one size of the bad rows, and after fewer steps at many sizes."""
    mpl.rcParams["svg.hashsalt"] = "holdfast"
    figure, (over_steps, over_sizes) = plt.subplots(
        1, 2, figsize=(9, 4), sharey=True, layout="constrained"
    )
    sizes, n_before = [10.0**exponent for exponent in range(0, 13, 2)], 3 * n_steps // 8
    for label, (name, n_bad, style) in LINES.items():
        color = "tab:red" if label.startswith("mean") else "tab:blue"
        over_steps.plot(directions(name, n_bad, 1e6, n_steps), style, color=color, label=label)
        if n_bad:
            last = [directions(name, n_bad, size, n_before)[-1] for size in sizes]
            over_sizes.plot(sizes, last, style, color=color, marker="o")
    over_steps.set(
        yscale="log",
        xlabel="step",
        title="bad rows a million times too long",
        ylabel="norm of the direction, in gradients",
    )
    over_sizes.set(
        yscale="log",
        xscale="log",
        xlabel="how many times too long bad rows are",
        title=f"after {n_before} steps",
    )
    for axis in (over_steps, over_sizes):
        axis.grid(alpha=0.3)
    figure.legend(*over_steps.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/memory_under_attack.py FIGURE.svg")
    mpl.use("svg")
    draw(Path(sys.argv[1]))
