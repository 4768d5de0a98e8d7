r"""The README's figure: one rank of four goes bad, with and without `guard(model)`.

Drawn from the record of examples/guard_under_faults.py. From the project's root:

    python -m examples.one_bad_rank docs/results/guard_under_faults.jsonl \
        docs/results/one_bad_rank.svg
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl
from examples.run_records import chosen
from matplotlib.figure import Figure

# Colors with enough contrast on white and on black, because the background is transparent.
PLAIN, GUARDED, TEXT = "#e5534b", "#3b82f6", "#808080"
BAD_FROM = 100


def draw(record: Path, path: Path) -> None:
    """Test accuracy of LeNet over the steps; rank 1 has its gradients times -100 from the middle."""
    done = [json.loads(line) for line in record.read_text().splitlines()]
    runs = chosen(done, case="LeNet, DDP, 4 ranks", fault="scaled-flip")
    styles = {"plain": ("plain DDP", PLAIN, 16), "guarded": ("with guard(model)", GUARDED, 70)}
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        label, color, height = styles[run["way"]]
        steps = range(10, 10 * len(run["curve"]) + 1, 10)
        axes.plot(steps, run["curve"], color=color, linewidth=3)
        text = f"{label}: {run['accuracy']:.0f} %"
        axes.text(155, height, text, color=color, ha="center", fontsize=13, weight="bold")
    axes.axvline(BAD_FROM, color=TEXT, linewidth=1, linestyle="--", zorder=0)
    axes.text(BAD_FROM - 2, 32, "rank 1 of 4 goes bad", color=TEXT, ha="right")
    axes.set(xlabel="step", ylabel="test accuracy, %", xlim=(0, 202), ylim=(0, 90))
    axes.xaxis.label.set_color(TEXT)
    axes.yaxis.label.set_color(TEXT)
    axes.tick_params(colors=TEXT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(TEXT)
    with mpl.rc_context({"svg.hashsalt": "holdfast"}):  # ids are the same each time
        figure.savefig(path, transparent=True, metadata={"Date": None})


def main() -> None:
    """Read the arguments, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=Path)
    parser.add_argument("figure", type=Path)
    given = parser.parse_args()
    draw(given.record, given.figure)


if __name__ == "__main__":
    main()
