"""The effect of 8 bad rows of 20 on each aggregation rule, on synthetic gradients.

Every cell is the distance of the aggregate from the true gradient, divided by that of the mean of
the honest rows. At 1 a rule is as good as knowing the honest rows.

    python examples/rules_under_attack.py
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text
from torch import Tensor

from holdfast.aggregators import GeometricMedian, rules
from holdfast.seeds import stream

N, N_BAD, D = 20, 8, 500_000

RULES = [
    "mean",
    f"norm-filter(n_bad={N_BAD})",
    "coordinate-median",
    f"trimmed-mean(n_bad={N_BAD})",
    "medoid",
    f"krum(n_bad={N_BAD})",
    f"multi-krum(n_bad={N_BAD})",
    "geometric-median",
    f"mixing(n_bad={N_BAD}) | geometric-median",
    f"spectral-filter(n_bad={N_BAD})",
    "covariance-filter",
]

ATTACKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda own, _: own,
    "-100 g": lambda own, _: -100 * own,
    "1e30": lambda own, _: torch.full_like(own, 1e30),
    "NaN": lambda own, _: torch.full_like(own, float("nan")),
    "collapse": lambda own, honest: -(honest.sum(0) / N_BAD).expand_as(own),
    "little": lambda own, honest: (honest.mean(0) - 1.5 * honest.std(0)).expand_as(own),
}
"""The bad rows, from their own gradients and those of the honest rows."""


def sample() -> tuple[Tensor, Tensor]:
    """A true gradient [d], and rows [n, d] with noise of the same length, as in small batches."""
    generator = stream(0, "demonstration")
    truth = torch.randn(D, generator=generator)
    return truth, truth + torch.randn(N, D, generator=generator)


def cell(error: float) -> Text:
    """The error, green if it is near that of the honest mean, red if the attack succeeds."""
    color = "green" if error < 3 else "yellow" if error < 10 else "red"
    return Text(f"{error:.1f}" if error < 1000 else f"{error:.0e}", style=color)


def seconds(call: Callable[[], object]) -> float:
    """The shortest of five runs."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    """Measure all cells and print the table."""
    console = Console()
    truth, rows = sample()
    honest = rows[N_BAD:]
    bad = {name: attack(rows[:N_BAD], honest) for name, attack in ATTACKS.items()}
    attacked = {name: torch.cat([sent, honest]) for name, sent in bad.items()}
    unit = float((honest.mean(0) - truth).norm())

    table = Table(
        title=f"\n{N_BAD} bad rows of {N}, {D:,} coordinates: error of the aggregate",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 0),
        pad_edge=False,
    )
    table.add_column("rule", style="cyan", no_wrap=True)
    for name in ATTACKS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cost", justify="right", style="dim", no_wrap=True)
    for text in track(RULES, description="Aggregating", console=console, transient=True):
        rule = rules.parse(text)
        errors = [float((rule(sent) - truth).double().norm()) / unit for sent in attacked.values()]
        cost = seconds(partial(rule, rows)) / seconds(partial(rows.mean, 0))
        table.add_row(Text(text.replace(f"(n_bad={N_BAD})", "")), *map(cell, errors), f"{cost:.1f}")
    console.print(table)

    result = GeometricMedian().aggregate(attacked["-100 g"])
    assert result.weights is not None
    console.print(
        "1.0 is as good as averaging the honest rows; [green]green[/] is below 3, "
        "[red]red[/] above 10. Cost is in plain means.\n"
        f"[cyan]geometric-median[/] under -100 g: {result.outcome.value} "
        f"(gap {result.gap:.0e}, {result.steps} steps); "
        f"the bad rows hold {float(result.weights[:N_BAD].sum()):.1%} of the weight.\n"
        "All rules: [cyan]docs/rules.md[/]. How to choose: [cyan]docs/choosing.md[/].\n"
    )


if __name__ == "__main__":
    main()
