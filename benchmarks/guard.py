"""The tables of the guard: each function measures one and returns its rows as plain
dictionaries.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.core import LENET, RESNET18, Table
from benchmarks.hosts import Loopback, Network, hosts, missing
from benchmarks.timing import interleaved
from holdfast.aggregators import as_rule
from holdfast.geometry import DenseRows
from holdfast.monitor import Monitor
from holdfast.seeds import stream

TITLE = "Speed, memory and traffic of the guard"

RULES = ["radius-filter", "geometric-median"]
N_RANKS = 4


def guarded_aggregation() -> Table:
    """A guarded aggregation of one vector per rank over `all_reduce` of the same vector.

    Four ranks on loopback, where an all-reduce runs at the speed of memory.
    """
    table = []
    for d, n_rounds in ((LENET, 40), (RESNET18, 15)):
        best = Loopback(N_RANKS).run(
            "benchmarks.ranks:aggregations", d=d, n_rounds=n_rounds, rules=RULES
        )[0]
        for rule in RULES:
            row = {
                "ranks": N_RANKS,
                "d": d,
                "rule": rule,
                "all_reduce_ms": 1e3 * best["all_reduce"],
            }
            row |= {"guarded_ms": 1e3 * best[rule], "ratio": best[rule] / best["all_reduce"]}
            table.append(row)
    return table


def parts_of_aggregation() -> Table:
    """The parts of a guarded aggregation by the radius filter, in ms; four ranks on loopback.

    The rule contains the Gram matrix, its small all-reduce and the weighted sum. `both ways` is the
    all-to-all of the gradients and the one that brings the result back. The heartbeat is the key
    that each rank sets in the store.
    """
    table = []
    for d, n_rounds in ((LENET, 30), (RESNET18, 10)):
        best = Loopback(N_RANKS).run(
            "benchmarks.ranks:parts_of_aggregation", d=d, n_rounds=n_rounds
        )[0]
        table.append({"d": d} | {f"{name}_ms": 1e3 * value for name, value in best.items()})
    return table


def ddp_steps() -> Table:
    """A whole step of SGD in DistributedDataParallel, guarded over plain; 4 ranks on loopback.

    LeNet has 64 images per rank, ResNet-18 16. `difference` is the largest difference between a
    parameter of the guarded model and one of the plain model, over the largest parameter: after the
    first step, and after all of them. The models are not bitwise equal, because an all-reduce adds
    the terms of each part of a bucket in another order. LeNet stays within 1e-7 for 32 steps, with
    the rule "mean" as with the radius filter; then rounding changes the result of a maximum, and
    the difference grows.
    """
    return _steps(Loopback(N_RANKS), [("lenet", 20, 3), ("resnet-18", 8, 1)], ["model", "bucket"])


def _steps(network: Network, models: list[tuple[str, int, int]], kinds: list[str]) -> Table:
    table = []
    for model, n_rounds, n_calls in models:
        found = network.run(
            "benchmarks.ranks:ddp_steps",
            name=model,
            n_rounds=n_rounds,
            n_calls=n_calls,
            kinds=kinds,
        )
        seconds = found[0]["seconds"]
        for per in kinds:
            row: dict[str, Any] = {"model": model, "per": per}
            row |= {"plain_ms": 1e3 * seconds["plain"], "guarded_ms": 1e3 * seconds[per]}
            row["ratio"] = seconds[per] / seconds["plain"]
            row["difference_after_one_step"] = found[0]["first"][per]
            row["difference_at_the_end"] = found[0]["last"][per]
            row["rows_left_out"] = found[0]["left_out"][per]
            if not isinstance(network, Loopback):
                sent = {
                    name: max(one["sent"][name] for one in found) / 1e6 for name in ("plain", per)
                }
                row |= {"plain_mb_sent": sent["plain"], "guarded_mb_sent": sent[per]}
                row["traffic_ratio"] = sent[per] / sent["plain"]
            table.append(row)
    return table


def fsdp_units() -> Table:
    """A guarded reduce-scatter of one unit of `fully_shard` over the plain one; 4 ranks.

    Gloo's reduce-scatter is slow: it takes longer than its all-reduce, although it does half of its
    work. Relative to half of an all-reduce, the ratio would be about 2 for the larger vector and 3
    for the smaller one.
    """
    table = []
    for d, n_rounds in ((LENET, 40), (RESNET18, 15)):
        best = Loopback(N_RANKS).run(
            "benchmarks.ranks:reduce_scatters", d=d, n_rounds=n_rounds, rules=RULES
        )[0]
        plain = best["reduce_scatter"]
        for rule in RULES:
            row = {"d": d, "rule": rule, "reduce_scatter_ms": 1e3 * plain}
            row |= {"guarded_ms": 1e3 * best[rule], "ratio": best[rule] / plain}
            table.append(row)
    return table


def steps_between_hosts() -> Table:
    """The same steps between 4 hosts (network namespaces) with a limited rate each.

    Bytes are those that the interface of the busiest host sends per step, headers included.
    """
    if (reason := missing()) is not None:
        print(f"skipped: {reason}.")
        return []
    table: Table = []
    for rate, models in (
        ("1gbit", [("lenet", 10, 2), ("resnet-18", 4, 1)]),
        ("100mbit", [("lenet", 4, 1)]),
    ):
        with hosts(N_RANKS, rate) as network:
            found = _steps(network, models, ["model", "bucket"])
        table += [{"rate": rate} | row for row in found]
    for row in table:
        del row["difference_after_one_step"], row["difference_at_the_end"]
    return table


def memory() -> Table:
    """Peak memory per rank of an aggregation beyond the vector, in vectors of the same size.

    Two ranks use the rule "mean", because they cannot outvote each other.
    """
    table = []
    for mode in ("sharded", "gathered"):
        for n in (2, 4, 8):
            row: dict[str, Any] = {"mode": mode, "ranks": n}
            for d in (LENET, RESNET18):
                rule = "mean" if n == 2 else "radius-filter"
                found = Loopback(n).run("benchmarks.ranks:memory", d=d, rule=rule, mode=mode)
                row[f"extra_at_{d}"] = max(found) / (4 * d)
            table.append(row)
    return table


def bytes_sent(n: int, d: int) -> float:
    """The model: bytes that a rank sends, to share out its columns and the result of its own."""
    return 2 * (n - 1) / n * 4 * d


def gram_flops(n: int, d: float) -> float:
    """The model: operations of a rank for its part of the Gram matrix, of n rows and d/n
    columns.
    """
    return n * n * d / n * 2


def model_against_measurement() -> Table:
    """The model of the costs against 2, 4 and 8 ranks; d = 11,173,962.

    Bytes per rank are counted on hosts without a limit, with the headers of all packets. Gram and
    weighted sum are predicted from the time at 4 ranks: n · d operations per rank for the one, d
    for the other, on cores that n ranks share. At 2 ranks the model is too low by a factor of about
    three for both, probably because the ranks wait for memory; this was not examined.
    """
    table: Table = []
    d = RESNET18
    times = {
        n: Loopback(n).run("benchmarks.ranks:parts_of_aggregation", d=d, n_rounds=8)[0]
        for n in (2, 4, 8)
    }
    for n, best in times.items():
        row: dict[str, Any] = {"ranks": n}
        if missing() is None:
            with hosts(n, None) as network:
                rule = "mean" if n == 2 else "radius-filter"
                found = network.run("benchmarks.ranks:traffic", d=d, rule=rule)
            row["predicted_mb_sent"] = bytes_sent(n, d) / 1e6
            row["guarded_mb_sent"] = max(one["guarded"] for one in found) / 1e6
            row["all_reduce_mb_sent"] = max(one["all_reduce"] for one in found) / 1e6
        # With more ranks than cores, each has a part of a core.
        share = max(1.0, n / torch.get_num_threads()) / max(1.0, 4 / torch.get_num_threads())
        row["gram_ms"] = 1e3 * best["gram"]
        ratio = gram_flops(n, d) / gram_flops(4, d)
        row["predicted_gram_ms"] = 1e3 * times[4]["gram"] * ratio * share
        row["weighted_sum_ms"] = 1e3 * best["combine"]
        row["predicted_weighted_sum_ms"] = 1e3 * times[4]["combine"] * share
        row["n_x_n_sum_ms"] = 1e3 * best["sum_of_products"]
        table.append(row)
    return table


def decision() -> Table:
    """Milliseconds of one core to decide about n rows, given their inner products.

    Every rank does this on its own in every unit: the rule and the monitoring of the rows.
    """
    table = []
    for n in (8, 64, 256, 1024, 2048):
        rows = DenseRows(torch.randn(n, 256, generator=stream(0, "rows", n)))
        gram, monitor = rows.gram(), Monitor(n)
        products = gram.about_origin[:n, :n]
        nobody = torch.zeros(n, dtype=torch.bool)
        rule = as_rule("radius-filter")
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        best = interleaved(
            {
                "gram": rows.gram,
                "rule": lambda: rule.aggregate(rows),
                "watch": lambda: monitor.observe(products, nobody),
            },
            n_rounds=5 if n < 1000 else 2,
        )
        torch.set_num_threads(n_threads)
        rule_ms = 1e3 * max(0.0, best["rule"] - best["gram"])
        table.append({"rows": n, "rule_ms": rule_ms, "watch_ms": 1e3 * best["watch"]})
    return table


FLOPS, FLOAT32_FLOPS, RATE, TOKENS, PER_NODE = 4e14, 4e13, 5e10, 8192, 8
"""An accelerator: operations per second in training and in float32 products; bytes per second and
direction of its network interface; tokens per rank and step; ranks per node."""

UNITS = {1e9: 24, 1e10: 48, 1e11: 96}
"""Units of `fully_shard` by the number of parameters."""


def costs_at_scale() -> Table:
    """What the guard adds to a step with FSDP2, predicted by the model, in shares of the step.

    Assumed: every rank has 8,192 tokens per step, 4e14 operations per second in training (6 per
    token and parameter), 4e13 in float32 products, an interface of 50 GB/s of its own; 8 ranks per
    node; 24, 48 and 96 units for 1e9, 1e10 and 1e11 parameters. The Gram matrix takes n · d
    multiplications per rank, the products travel once per unit (8 · n² bytes, twice), and every
    rank decides on a CPU (the table above: the rule per unit, the watch once per step, both with
    n²). Nothing of this is hidden behind the backward pass. `rows as nodes`: n / 8 rows.

    The share of the Gram matrix does not depend on the number of parameters: n over three times the
    number of tokens per rank, times the ratio of the two speeds. With ranks as rows the guard is
    cheap up to about 64 ranks and expensive from a few hundred on: first because of the decision on
    the CPU, then because of the Gram matrix. With nodes as rows (`nodes=`), 1,024 ranks cost as
    much as 128 rows, and 4,096 ranks are affordable only with 1e11 parameters. For more ranks, a
    row would have to be several nodes.

    The table does not cover ranks of a node that share one cable. A ring passes it once per node,
    ranks as rows pass it once per rank; nodes as rows also have the traffic of the plain reduction.
    """
    table = []
    for d, n_units in UNITS.items():
        for n in (64, 512, 1024, 4096, 10_000):
            step = 6 * d * TOKENS / FLOPS
            row: dict[str, Any] = {"ranks": n, "parameters": f"{d:.0e}", "step_s": step}
            row |= {f"{key}_share": value / step for key, value in added(n, n, d, n_units).items()}
            row["rows_as_ranks_share"] = sum(added(n, n, d, n_units).values()) / step
            row["rows_as_nodes_share"] = sum(added(n // PER_NODE, n, d, n_units).values()) / step
            table.append(row)
    return table


def added(n_rows: int, n_ranks: int, d: float, n_units: int) -> dict[str, float]:
    """Seconds that the model adds to a step, with n rows over columns that all ranks share."""
    return {
        "gram": gram_flops(n_rows, d * n_rows / n_ranks) / FLOAT32_FLOPS,
        "products": n_units * 2 * 8 * n_rows**2 / RATE,
        "decision": (n_units * RULE + WATCH) * n_rows**2,
    }


RULE, WATCH = 2.8e-8, 2.1e-9
"""Seconds of the rule and of the watch by n², from the table of decisions at 2,048 rows."""


TABLES: dict[str, Callable[[], Table]] = {
    "guarded_aggregation": guarded_aggregation,
    "parts_of_aggregation": parts_of_aggregation,
    "ddp_steps": ddp_steps,
    "fsdp_units": fsdp_units,
    "steps_between_hosts": steps_between_hosts,
    "memory_per_rank": memory,
    "model_against_measurement": model_against_measurement,
    "decision": decision,
    "costs_at_scale": costs_at_scale,
}


def bars(results: dict[str, Any]) -> Table:
    """The goals for the guard beside the figures."""
    table: Table = []

    def add(what: str, most: float, measured: float) -> None:
        met = measured <= most
        table.append({"what": what, "bar": f"at most {most:g}", "measured": measured, "met": met})

    for row in results.get("guarded_aggregation", []):
        add(f"{row['rule']}, d = {row['d']:,}, over all_reduce", 2, row["ratio"])
    for row in results.get("ddp_steps", []):
        what = f"DDP step, {row['model']}, per {row['per']}, over plain"
        add(what, 1.1, row["ratio"])
    for row in results.get("fsdp_units", []):
        add(f"FSDP2 unit, {row['rule']}, d = {row['d']:,}, over reduce-scatter", 2, row["ratio"])
    for row in results.get("steps_between_hosts", []):
        what = f"DDP step, {row['model']}, per {row['per']}, 4 hosts, {row['rate']}"
        add(f"{what}, over plain", 1.15, row["ratio"])
    sharded = [row for row in results.get("memory_per_rank", []) if row["mode"] == "sharded"]
    if sharded:
        most = max(value for row in sharded for key, value in row.items() if "extra" in key)
        add("extra memory per rank, sharded, most over sizes and ranks, in vectors", 2, most)
    return table


BARS = (
    "Goals, and whether they are met. Four ranks share two cores, so everything that a rank "
    "computes counts twice. ResNet-18 meets its bars but for one rule for the whole model at 1 "
    "Gbit/s; LeNet misses its bars on loopback and at 1 Gbit/s. A guarded aggregation has three "
    "exchanges, one after the other, where an all-reduce has one, and about 3 ms of small tensor "
    "operations per rank (Gram matrix of 4 rows, decision, monitoring) that do not depend on d. "
    "They matter most compared with an all-reduce of LeNet's gradient within one machine, which "
    "takes 4 ms. Moreover, a rule for the whole model cannot send its result before the last "
    "bucket has arrived: half of the bytes are not hidden behind the backward pass, while plain "
    "DDP hides nearly all, and the faster the processor, the less there is to hide behind. Per "
    "bucket they are hidden as well. Each rank was pinned to a core of a machine that was "
    "otherwise idle. On other machines, slower or busy, the ratios of LeNet were 2.2 to 3.4 for "
    "the aggregation, 1.17 to 1.25 for a DDP step and 1.17 to 1.6 at 1 Gbit/s, those of ResNet-18 "
    "1.4 to 2.05, 0.99 to 1.10 and 1.04 to 1.31. The bar on memory stands for O(d)."
)
