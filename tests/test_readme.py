"""The README's code runs as printed, fails where it should, and its figures are the committed ones."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pytest
import torch
from examples.one_bad_rank import draw
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast.aggregators import rules
from holdfast.aggregators._call import CallContext
from holdfast.aggregators._families import GramAggregator
from holdfast.federated import LocalGrid
from holdfast.geometry import Gram, Solution
from holdfast.lab.data import fashion_mnist_slice
from holdfast.optim import RobustOptimizer
from holdfast.seeds import stream
from holdfast.sources import MicroBatches

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def diff_with(line: str) -> str:
    """The diff that adds this line."""
    diffs = re.findall(r"```diff\n(.*?)```", README, flags=re.DOTALL)
    (found,) = [diff for diff in diffs if f"+ {line}" in diff]
    return str(found)


def after(diff: str) -> str:
    """The code with the diff applied."""
    return "\n".join(line[2:] for line in diff.splitlines() if not line.startswith("-"))


def test_it_is_short_and_wrapped() -> None:
    lines = README.splitlines()
    assert len(lines) <= 200
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []


def test_the_picture_is_drawn_from_the_committed_record(tmp_path: Path) -> None:
    results = ROOT / "docs" / "results"
    draw(results / "guard_under_faults.jsonl", tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").read_bytes() == (results / "one_bad_rank.svg").read_bytes()


def test_the_diff_of_the_loop_trains() -> None:
    diff = diff_with("optimizer = RobustOptimizer(optimizer)")
    assert sum(line.startswith("+") for line in diff.splitlines()) == 3, "three lines change"
    data = fashion_mnist_slice("train")
    model: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    names = {
        "model": model,
        "loss_fn": nn.CrossEntropyLoss(),
        "loader": DataLoader(
            TensorDataset(data.scaled(), data.labels),
            batch_size=320,
            shuffle=True,
            drop_last=True,
            generator=stream(0, "order"),
        ),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "MicroBatches": MicroBatches,
        "RobustOptimizer": RobustOptimizer,
    }
    before = nn.functional.cross_entropy(model(data.scaled()), data.labels).item()
    exec(after(diff), names)
    assert nn.functional.cross_entropy(model(data.scaled()), data.labels).item() < before - 0.3


def run_the_example() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    with torch.random.fork_rng():
        exec(compile(code, "README.md", "exec"), {})


def figures(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_the_example_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run_the_example()
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```\n(accuracy: .*?)```", README, flags=re.DOTALL)
    assert re.sub(r"\d+", "", printed) == re.sub(r"\d+", "", shown)
    # Another processor rounds differently, which may move an image or a row.
    assert figures(printed) == pytest.approx(figures(shown), abs=3)


@final
@dataclass(frozen=True, kw_only=True)
class Constant(GramAggregator):
    """A rule that does not look at the eight rows: their weights are those of the class."""

    name: ClassVar[str] = "constant"
    n_needed: ClassVar[int] = 1
    row_weights: ClassVar[list[float]]

    def _n_resisted(self, n: int) -> int:
        return 0

    def _solve(self, gram: Gram, context: CallContext) -> Solution:
        return Solution(torch.tensor(self.row_weights, dtype=torch.float64))


@pytest.fixture
def with_weights(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """Makes a rule with these weights the default rule."""

    def replace(weights: list[float]) -> None:
        monkeypatch.setattr(Constant, "row_weights", weights, raising=False)
        monkeypatch.setitem(rules._members, "radius-filter", Constant)

    return replace


BROKEN = {"zero": [0.0] * 8, "mean": [1 / 8] * 8, "another row left out": [0.0, *[1 / 7] * 7]}


@pytest.mark.parametrize("name", BROKEN)
def test_the_example_fails_with_a_broken_rule(
    name: str, with_weights: Callable[[list[float]], None]
) -> None:
    with_weights(BROKEN[name])
    with pytest.raises(AssertionError) as failed:
        run_the_example()
    assert failed.traceback[-1].frame.code.raw.co_filename == "README.md", "its own assertion"


def test_the_example_holds_if_only_the_bad_row_is_left_out(
    with_weights: Callable[[list[float]], None],
) -> None:
    with_weights([1 / 7] * 3 + [0.0] + [1 / 7] * 4)
    run_the_example()


def train(message: Message, context: Context) -> Message:
    """A client's reply: one more than it got; from client 1 a million more."""
    weights = message.content.array_records["arrays"]["w"].numpy()
    moved = weights + np.float32(1e6 if context.node_config["partition-id"] == 1 else 1.0)
    return Message(
        RecordDict(
            {
                "arrays": ArrayRecord({"w": Array(moved)}),
                "metrics": MetricRecord({"num-examples": 10}),
            }
        ),
        reply_to=message,
    )


def test_the_diff_of_flower_survives_a_client_that_lies() -> None:
    diff = diff_with("from holdfast.federated import RobustStrategy")
    assert len(diff.splitlines()) == 3
    app = ClientApp()
    app.train()(train)

    def trained(code: str) -> float:
        names = {"FedAvg": lambda fraction_train: FedAvg(fraction_evaluate=0.0)}
        exec(code, names)
        grid = LocalGrid(app, {11 + i: {"partition-id": i} for i in range(6)})
        arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
        result = names["strategy"].start(grid, arrays, num_rounds=2)  # type: ignore[attr-defined]
        return float(result.arrays["w"].numpy().max())

    assert trained(after(diff)) == pytest.approx(2)
    plain = [line[2:] for line in diff.splitlines() if line.startswith("-")]
    assert trained("\n".join(plain)) > 1e5


def table_under(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its rule of hyphens."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line
    ]


def test_the_table_of_attacks_has_the_committed_figures() -> None:
    columns = {
        "mean (ordinary training)": "mean",
        "radius filter (default)": "radius filter",
        "geometric median": "exact",
        "covariance filter": "filter",
        "BGMD": "bgmd",
        "Algorithm 1 of the paper": "bgmd-paper",
    }
    page = (ROOT / "docs" / "results" / "bgmd_under_attack.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    head, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    measured = {
        line[0]: dict(zip(head, line, strict=True)) for line in body if line[1] in ("0 %", "40 %")
    }
    (_, *attacks), *rows = table_under("What it holds against")
    assert [row[0] for row in rows] == list(columns)
    for name, *cells in rows:
        for attack, cell in zip(attacks, cells, strict=True):
            found = measured["none" if attack == "nobody" else attack][columns[name]]
            assert cell == found.split(" ")[0], (name, attack)


def benchmark(page: str, table: str, **wanted: object) -> dict[str, float]:
    """The only row of a benchmark with these settings."""
    record = json.loads((ROOT / "docs" / "benchmarks" / f"{page}.json").read_text())
    (row,) = [
        row for row in record[table] if all(row[key] == value for key, value in wanted.items())
    ]
    return dict(row)


def test_the_table_of_costs_has_the_committed_figures() -> None:
    lenet = [
        benchmark("training", "micro_batch_steps", memory_format=kind, step="radius filter")
        for kind in ("contiguous", "channels_last")
    ]
    small = benchmark("training", "small_model_steps", samples=256, step="radius filter")
    steps = [
        benchmark("guard", "ddp_steps", model=model, per="model")
        for model in ("resnet-18", "lenet")
    ]
    medians = benchmark("core", "geometric_medians", n=32, rows="clean")
    peers = [medians[f"{peer}_means"] for peer in ("geom-median", "byzfl", "byzpy")]
    assert [row[1] for row in table_under("What it costs")[1:]] == [
        " to ".join(f"{row['over_rows_alone']:.2f}" for row in lenet),
        f"{small['over_plain']:.2f}",
        ", ".join(f"{row['ratio']:.2f}" for row in steps),
        f"{medians['holdfast_means']:.2f} ({', '.join(f'{value:.3g}' for value in peers)})",
    ]


def test_its_commands_exist() -> None:
    makefile, project = (ROOT / "Makefile").read_text(), (ROOT / "pyproject.toml").read_text()
    targets = re.findall(r"^make ([\w-]+)", README, flags=re.MULTILINE)
    assert set(targets) == {"run", "test"}
    assert [target for target in targets if f"\n{target}: " not in makefile] == []
    extras = re.findall(r"\.\[(\w+)\]'", README)
    assert [extra for extra in extras if f"\n{extra} = [" not in project] == []
