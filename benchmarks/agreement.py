"""Where rules of other libraries agree with ours, and where not: docs/migrating/agreement.md.

Usage: make bench installs the libraries; python -m benchmarks.agreement
"""

import importlib
import inspect
import logging
import multiprocessing
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from benchmarks import peers
from benchmarks.__main__ import markdown
from benchmarks.core import Table
from holdfast.adapters.torchjd import RuleAggregator
from holdfast.aggregators import Wrapper, rules
from holdfast.federated import LocalGrid, RobustStrategy

PAGE = Path(__file__).parent.parent / "docs" / "migrating" / "agreement.md"

N_DRAWS, D, F = 20, 50, 3

PATIENCE = 20.0
"""Seconds after which a rule counts as one that does not end."""

Rule = Callable[[Tensor], Tensor]


def byzfl(name: str, *, module: str = "aggregators", **arguments: Any) -> Rule:
    """A rule of ByzFL, new at every call; float64 comes as arrays, since tensors become float32."""
    make = getattr(peers.byzfl(module), name)

    def aggregate(rows: Tensor) -> Tensor:
        given = rows.clone() if rows.dtype == torch.float32 else rows.numpy().copy()
        return torch.as_tensor(make(**arguments)(given)).flatten()

    return aggregate


def byzpy(path: str, **arguments: Any) -> Rule:
    """An aggregator or pre-aggregator of ByzPy, by its module and class."""
    module, name = path.rsplit(".", 1)
    rule = getattr(importlib.import_module(f"byzpy.{module}"), name)(**arguments)
    if hasattr(rule, "pre_aggregate"):
        return lambda rows: torch.cat(rule.pre_aggregate(list(rows)))
    return lambda rows: torch.as_tensor(rule.aggregate(list(rows)))


def torchjd(name: str, **arguments: Any) -> Rule:
    """An aggregator of TorchJD."""
    rule: Rule = getattr(importlib.import_module("torchjd.aggregation"), name)(**arguments)
    return rule


def flwr(make: Callable[[], Strategy]) -> Rule:
    """What a strategy of Flower makes of the models of its clients."""

    def aggregate(rows: Tensor) -> Tensor:
        strategy = make()
        arrays, _ = strategy.aggregate_train(1, replies(strategy, rows))
        assert arrays is not None
        return torch.tensor(arrays["w"].numpy())

    return aggregate


def replies(strategy: Strategy, rows: Tensor, examples: tuple[int, ...] = ()) -> list[Message]:
    """One reply for each row, which is the model of a client; the global one is zero."""
    grid = LocalGrid(ClientApp(), {i + 1: {} for i in range(len(rows))})
    start = ArrayRecord({"w": Array(np.zeros(rows.shape[1]))})
    asked = list(strategy.configure_train(1, start, ConfigRecord(), grid))
    asked.sort(key=lambda message: message.metadata.dst_node_id)
    claims = examples or (10,) * len(rows)
    return [
        Message(
            RecordDict(
                {
                    "arrays": ArrayRecord({"w": Array(row.numpy())}),
                    "metrics": MetricRecord({"num-examples": claim}),
                }
            ),
            reply_to=message,
        )
        for row, message, claim in zip(rows, asked, claims, strict=True)
    ]


def ours(text: str) -> Rule:
    """A rule of Holdfast; for a wrapper without a rule, all of its rows."""
    if not text.endswith("| rows"):
        return rules.parse(text)
    wrapper = rules.parse(text.replace("| rows", "| mean"))
    assert isinstance(wrapper, Wrapper)
    return lambda rows: torch.as_tensor(wrapper.transform(rows)).flatten()


def robust(text: str) -> Rule:
    """A rule of Holdfast in front of Flower's FedAvg."""
    return flwr(lambda: RobustStrategy(flower.FedAvg(), text))


def byzfl_pairs() -> dict[str, tuple[Rule, str]]:
    pre = {"module": "preaggregators"}
    return {
        "Average()": (byzfl("Average"), "mean"),
        "Median()": (byzfl("Median"), "coordinate-median"),
        "TrMean(f)": (byzfl("TrMean", f=F), f"trimmed-mean(n_bad={F})"),
        "Meamed(f)": (byzfl("Meamed", f=F), f"mean-around-median(n_bad={F})"),
        "GeometricMedian()": (byzfl("GeometricMedian"), "geometric-median"),
        "GeometricMedian(nu=1e-9, T=1000)": (
            byzfl("GeometricMedian", nu=1e-9, T=1000),
            "geometric-median(tolerance=1e-9)",
        ),
        "Krum(f)": (byzfl("Krum", f=F), f"krum(n_bad={F - 1})"),
        "MultiKrum(f)": (
            byzfl("MultiKrum", f=F),
            f"multi-krum(n_bad={F - 1}, n_selected={{m}})",
        ),
        "MDA(f)": (byzfl("MDA", f=F), f"minimum-diameter(n_bad={F})"),
        "MoNNA(f)": (byzfl("MoNNA", f=F), f"neighbor-mean(n_bad={F})"),
        "SMEA(f)": (byzfl("SMEA", f=F), f"minimum-variance(n_bad={F})"),
        "CAF(f)": (byzfl("CAF", f=F), f"covariance-filter(n_bad={F})"),
        "CenteredClipping(tau=5.0), first call": (
            byzfl("CenteredClipping", tau=5.0),
            "centered-clipping(radius=5.0, n_steps=1)",
        ),
        "NNM(f)": (byzfl("NNM", f=F, **pre), f"mixing(n_bad={F}) | rows"),
        "Clipping(c=5.0)": (byzfl("Clipping", c=5.0, **pre), "clipping(radius=5.0) | rows"),
        "ARC(f)": (byzfl("ARC", f=F, **pre), f"clipping(n_bad={F}) | rows"),
    }


def byzpy_pairs() -> dict[str, tuple[Rule, str]]:
    coordinate, geometric, norm = (
        f"aggregators.{family}_wise" for family in ("coordinate", "geometric", "norm")
    )
    median = byzpy(f"{coordinate}.CoordinateWiseMedian")
    trimmed = byzpy(f"{coordinate}.CoordinateWiseTrimmedMean", f=F)
    filtered = byzpy(f"{norm}.ComparativeGradientElimination", f=F)
    clipped = byzpy(f"{norm}.CenteredClipping", c_tau=5.0, M=10, init="zero")
    return {
        "CoordinateWiseMedian()": (median, "coordinate-median"),
        "CoordinateWiseTrimmedMean(f)": (trimmed, f"trimmed-mean(n_bad={F})"),
        "MeanOfMedians(f)": (
            byzpy(f"{coordinate}.MeanOfMedians", f=F),
            f"mean-around-median(n_bad={F})",
        ),
        "GeometricMedian()": (
            byzpy(f"{geometric}.GeometricMedian"),
            "geometric-median(tolerance=1e-9)",
        ),
        "Krum(f)": (byzpy(f"{geometric}.Krum", f=F), f"krum(n_bad={F - 1})"),
        "MultiKrum(f, q=4)": (
            byzpy(f"{geometric}.MultiKrum", f=F, q=4),
            f"multi-krum(n_bad={F - 1}, n_selected=4)",
        ),
        "MinimumDiameterAveraging(f)": (
            byzpy(f"{geometric}.MinimumDiameterAveraging", f=F),
            f"minimum-diameter(n_bad={F})",
        ),
        "MoNNA(f)": (byzpy(f"{geometric}.MoNNA", f=F), f"neighbor-mean(n_bad={F})"),
        "SMEA(f)": (byzpy(f"{geometric}.SMEA", f=F), f"minimum-variance(n_bad={F})"),
        "CAF(f)": (byzpy(f"{norm}.CAF", f=F), f"covariance-filter(n_bad={F})"),
        "ComparativeGradientElimination(f)": (filtered, f"norm-filter(n_bad={F})"),
        "CenteredClipping(c_tau=5.0, init='zero')": (
            clipped,
            "centered-clipping(radius=5.0, n_steps=10)",
        ),
        "NearestNeighborMixing(f)": (
            byzpy("pre_aggregators.NearestNeighborMixing", f=F),
            f"mixing(n_bad={F}) | rows",
        ),
        "Clipping(threshold=5.0)": (
            byzpy("pre_aggregators.Clipping", threshold=5.0),
            "clipping(radius=5.0) | rows",
        ),
        "ARC(f)": (byzpy("pre_aggregators.ARC", f=F), f"clipping(n_bad={F}) | rows"),
    }


def geom_median_pairs() -> dict[str, tuple[Rule, str]]:
    compute = importlib.import_module("geom_median.torch").compute_geometric_median
    return {
        "compute_geometric_median(points)": (
            lambda rows: compute(list(rows)).median,
            "geometric-median(tolerance=1e-9)",
        ),
    }


def torchjd_pairs() -> dict[str, tuple[Rule, str]]:
    return {
        "Mean()": (torchjd("Mean"), "mean"),
        "TrimmedMean(trim_number)": (
            torchjd("TrimmedMean", trim_number=F),
            f"trimmed-mean(n_bad={F})",
        ),
        "Krum(n_byzantine)": (torchjd("Krum", n_byzantine=F), f"krum(n_bad={F})"),
        "Krum(n_byzantine, n_selected=4)": (
            torchjd("Krum", n_byzantine=F, n_selected=4),
            f"multi-krum(n_bad={F}, n_selected=4)",
        ),
    }


def flower_pairs() -> dict[str, tuple[Rule, str]]:
    return {
        "FedAvg()": (flwr(flower.FedAvg), "mean"),
        "FedMedian()": (flwr(flower.FedMedian), "coordinate-median"),
        "FedTrimmedAvg(beta=0.2)": (
            flwr(lambda: flower.FedTrimmedAvg(beta=0.2)),
            "trimmed-mean(bad_fraction=0.2)",
        ),
        "Krum(num_malicious_nodes)": (
            flwr(lambda: flower.Krum(num_malicious_nodes=F)),
            f"krum(n_bad={F})",
        ),
        "MultiKrum(num_malicious_nodes, num_nodes_to_select=4)": (
            flwr(lambda: flower.MultiKrum(num_malicious_nodes=F, num_nodes_to_select=4)),
            f"multi-krum(n_bad={F}, n_selected=4)",
        ),
        "Bulyan(num_malicious_nodes=1)": (
            flwr(lambda: flower.Bulyan(num_malicious_nodes=1)),
            "bulyan(n_bad=1)",
        ),
    }


LIBRARIES: dict[str, tuple[Callable[[], dict[str, tuple[Rule, str]]], Callable[[str], Rule]]] = {
    "byzfl": (byzfl_pairs, ours),
    "byzpy": (byzpy_pairs, ours),
    "geom-median": (geom_median_pairs, ours),
    "torchjd": (torchjd_pairs, RuleAggregator),
    "flwr": (flower_pairs, robust),
}


def difference(theirs: Rule, mine: Rule, n: int) -> tuple[float, int]:
    """The largest relative difference over some draws of rows, and how many draws are alike."""
    generator, found = torch.Generator().manual_seed(n), []
    for _ in range(N_DRAWS):
        rows = torch.randn(n, D, generator=generator, dtype=torch.float64)
        own = mine(rows)
        found.append(float((theirs(rows) - own).norm() / own.norm()))
    return max(found), sum(one <= 1e-6 for one in found)


def agreement(library: str) -> Table:
    """Every rule of a library that we have, on 10 and on 11 rows."""
    pairs, wrap = LIBRARIES[library]
    table = []
    for name, (theirs, text) in pairs().items():
        line: dict[str, Any] = {"theirs": f"`{name}`", "ours": f"`{text.format(m='n - f')}`"}
        for n in (10, 11):
            largest, n_alike = difference(theirs, wrap(text.format(m=n - F)), n)
            is_alike = n_alike == N_DRAWS
            line[f"{n} rows"] = f"{largest:.0e}" if is_alike else f"{n_alike} of {N_DRAWS}"
        table.append(line)
    return table


def one_bad_row(library: str) -> Table:
    """Every rule of a library on 11 rows in float32, of which one holds the same value everywhere."""
    pairs, wrap = LIBRARIES[library]
    table = []
    for name, (theirs, text) in pairs().items():
        if text.endswith("| rows"):
            continue
        line, own = {"theirs": f"`{name}`"}, []
        for label, value in {
            "NaN": torch.nan,
            "infinity": torch.inf,
            "1e6": 1e6,
            "1e30": 1e30,
        }.items():
            rows = torch.randn(11, D, generator=torch.Generator().manual_seed(1))
            largest = float(rows.abs().max())
            rows[4] = value
            line[label] = ended(theirs, rows, largest)
            own.append(ended(wrap(text.format(m=11 - F)), rows, largest))
        same = len(set(own)) == 1
        table.append(line | {"ours": own[0] if same else ", ".join(own)})
    return table


def ended(rule: Rule, rows: Tensor, largest: float) -> str:
    """What becomes of a rule: "bounded" if no value of the result is above the honest ones."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_tell, args=(there, rule, rows))
    process.start()
    found = here.recv() if here.poll(PATIENCE) else "does not end"
    process.kill()
    process.join()
    if not isinstance(found, float):
        return str(found)
    return "bounded" if found <= largest else "NaN" if found != found else f"{found:.0e}"


def _tell(pipe: Connection, rule: Rule, rows: Tensor) -> None:
    try:
        pipe.send(float(rule(rows).abs().max()))
    except Exception as error:
        pipe.send(type(error).__name__)


def small_gradients() -> Table:
    """How far from the geometric median, in units of the mean's distance from it, at each scale.

    11 rows in float64, of which 4 are shifted by 8 in all 50 columns, times a factor.
    """
    rows = torch.randn(11, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[:4] += 8
    exact = rules.parse("geometric-median(tolerance=1e-9)")
    candidates: dict[str, Rule] = {
        "byzfl `GeometricMedian()`": byzfl("GeometricMedian"),
        "byzfl `GeometricMedian(T=1000)`": byzfl("GeometricMedian", T=1000),
        "byzpy `GeometricMedian()`": byzpy("aggregators.geometric_wise.GeometricMedian"),
        "geom-median": geom_median_pairs()["compute_geometric_median(points)"][0],
        "ours `geometric-median`": rules.parse("geometric-median"),
    }
    return [
        {"rule": name}
        | {
            f"times {c:g}": f"{distance(rule, c * rows, exact):.0e}"
            for c in (1e-9, 1e-6, 1e-3, 1.0, 1e3)
        }
        for name, rule in candidates.items()
    ]


def distance(rule: Rule, rows: Tensor, exact: Rule) -> float:
    """From the median, in units of the mean's distance."""
    median = exact(rows)
    return float((rule(rows) - median).norm() / (rows.mean(0) - median).norm())


def common_shift() -> Table:
    """How often, of 50 draws, Krum picks one of the bad rows, if all rows share a shift.

    11 rows of 50 numbers in float32, 3 of which are shifted by 5 in all columns (f = 3); then the
    same value is added to all rows. Differences of rows do not change.
    """
    candidates: dict[str, Rule] = {
        "byzfl `Krum(f)`": byzfl("Krum", f=F),
        "byzpy `Krum(f)`": byzpy("aggregators.geometric_wise.Krum", f=F),
        "torchjd `Krum(n_byzantine)`": torchjd("Krum", n_byzantine=F),
        "flwr `Krum(num_malicious_nodes)`": flwr(lambda: flower.Krum(num_malicious_nodes=F)),
        "ours `krum(n_bad)`": rules.parse(f"krum(n_bad={F})"),
    }
    return [
        {"rule": name} | {f"shift {shift:g}": n_bad_picks(rule, shift) for shift in (0.0, 1e4, 1e5)}
        for name, rule in candidates.items()
    ]


def n_bad_picks(rule: Rule, shift: float) -> int:
    generator, found = torch.Generator().manual_seed(0), 0
    for _ in range(50):
        rows = torch.randn(11, D, generator=generator)
        rows[:F] += 5
        rows += shift
        found += int((rows - rule(rows)).norm(dim=1).argmin()) < F
    return found


def claimed_examples() -> Table:
    """What Flower's FedAvg and ours make of 11 models, one of them 1e6, by the examples it claims."""
    rows = torch.ones(11, D)
    rows[4] = 1e6
    strategies: dict[str, Callable[[], Strategy]] = {
        "flwr `FedAvg()`": flower.FedAvg,
        "flwr `MultiKrum(num_malicious_nodes=3, num_nodes_to_select=4)`": lambda: flower.MultiKrum(
            num_malicious_nodes=F, num_nodes_to_select=4
        ),
        "ours `RobustStrategy(FedAvg())`": lambda: RobustStrategy(flower.FedAvg()),
        "ours, `geometric-median`": lambda: RobustStrategy(flower.FedAvg(), "geometric-median"),
    }
    table = []
    for name, make in strategies.items():
        line = {"strategy": name}
        for claim in (10, 10**9):
            strategy = make()
            messages = replies(strategy, rows, (10,) * 4 + (claim,) + (10,) * 6)
            arrays, _ = strategy.aggregate_train(1, messages)
            assert arrays is not None
            line[f"claims {claim:,}"] = f"{float(arrays['w'].numpy().max()):.6g}"
        table.append(line)
    return table


def repeated() -> Table:
    """Whether a call leaves its rows unchanged, and five more give the same result."""
    clipping = "clipping(n_bad=3) | mean"
    candidates: dict[str, Callable[[], Callable[[Tensor], Any]]] = {
        "byzfl `CAF(f)`": lambda: peers.byzfl("aggregators").CAF(f=F),
        "byzfl `SMEA(f)`": lambda: peers.byzfl("aggregators").SMEA(f=F),
        "byzfl `Clipping()`": lambda: peers.byzfl("preaggregators").Clipping(),
        "byzfl `ARC(f)`": lambda: peers.byzfl("preaggregators").ARC(f=F),
        "ours `covariance-filter`": lambda: rules.parse("covariance-filter"),
        "ours `minimum-variance(n_bad=3)`": lambda: rules.parse("minimum-variance(n_bad=3)"),
        f"ours `{clipping}`": lambda: rules.parse(clipping),
    }
    table = []
    for name, make in candidates.items():
        rows = 10 * torch.randn(11, D, generator=torch.Generator().manual_seed(2))
        given = rows.clone()
        first = torch.as_tensor(make()(given)).clone()
        is_same = all(torch.as_tensor(make()(rows.clone())).equal(first) for _ in range(5))
        table.append({"rule": name, "rows unchanged": given.equal(rows), "same result": is_same})
    return table


HEAD = """# Agreement with other libraries

Made by `python -m benchmarks.agreement` after `make bench` has installed the libraries; the pages
of this folder refer to it. Measured with
 {versions}.

## On honest rows

Rules side by side on {draws} draws of normal rows with {d} columns in float64, f = {f} where it is
not given. A number is the largest relative difference of the results; "13 of 20" means that the
results are alike, to 1e-6, in that many draws only. The pages say why."""


def page() -> str:
    """The whole page."""
    known = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    parts = [HEAD.format(versions=known, draws=N_DRAWS, d=D, f=F)]
    for library in LIBRARIES:
        parts += [f"**{library}**", markdown(agreement(library))]
    parts += ["## One bad row", BAD_ROW]
    for library in LIBRARIES:
        parts += [f"**{library}**", markdown(one_bad_row(library))]
    for title, measure in (
        ("Small gradients", small_gradients),
        ("A common shift", common_shift),
        ("Claimed examples", claimed_examples),
        ("Repeated calls", repeated),
    ):
        parts += [f"## {title}", inspect.getdoc(measure) or "", markdown(measure())]
    return "\n\n".join(parts) + "\n"


BAD_ROW = f"""One of 11 rows in float32 holds NaN, infinity, 1e6 or 1e30 in every column. "bounded": no value
of the result is larger than the largest honest one; a number is the largest value; else the error
that was raised. A rule that has not ended after {PATIENCE:g} seconds "does not end". A mean leaves out here
what is not finite; it promises no more."""


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
