"""How workers send: every scheme equals a loop that says what it should do."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from holdfast import Layout
from holdfast.aggregators import Aggregator, rules
from holdfast.exchange import AgreedBlock
from holdfast.geometry import Tiling
from holdfast.lab.models import mlp, small_mlp
from holdfast.lab.schemes import Exchange, ScatterMean, Scheme, SchemeRun, schemes
from holdfast.seeds import stream
from tests.exchange.cases import Simulation, layout_of
from tests.lab.config.test_texts import SCHEMES

N = 5


def started(text: str, rule: str = "", *, layout: Layout | None = None, n: int = N) -> SchemeRun:
    scheme: Scheme = schemes.parse(text)
    known: Aggregator = rules.parse(rule or scheme.default_rule)
    return scheme.start(layout or layout_of(), known, n=n, seed=7)


def rounds_of(d: int, *, n: int = N, n_rounds: int = 6) -> Iterator[tuple[Tensor, Tensor]]:
    """Updates [n, d], and who is present: everybody, or all but one."""
    for number in range(n_rounds):
        updates = torch.randn(n, d, generator=stream(3, "updates", number))
        absent = torch.arange(n) != number
        yield updates, torch.arange(n)[absent if number % 2 else absent | True]


def largest(vector: Tensor, k: int) -> list[int]:
    return sorted(range(len(vector)), key=lambda j: -abs(float(vector[j])))[:k]


def test_rosdhb_is_a_loop() -> None:
    run, d, k, beta = started("rosdhb(send=0.1, momentum=0.8)"), 58, 6, 0.8
    momentum = [[0.0] * d for _ in range(N)]
    for number, (updates, present) in enumerate(rounds_of(d)):
        sent = run.send(updates.clone(), present)
        columns = torch.randperm(d, generator=stream(7, "mask", number))[:k].tolist()
        for i in present.tolist():
            for j in range(d):
                fresh = d / k * float(updates[i, j]) if j in columns else 0.0
                momentum[i][j] = beta * momentum[i][j] + (1 - beta) * fresh
        wanted = torch.tensor([momentum[i] for i in present.tolist()])
        torch.testing.assert_close(sent.matrix, wanted)
        run.aggregate(sent)


def test_byz_ef21_is_a_loop() -> None:
    run, d, k, beta = started("byz-ef21(send=0.1, momentum=0.8)"), 58, 6, 0.8
    mirror, momentum = torch.zeros(N, d), torch.zeros(N, d)
    for number, (updates, present) in enumerate(rounds_of(d)):
        sent = run.send(updates.clone(), present)
        for i in range(N):
            momentum[i] = updates[i] if number == 0 else beta * momentum[i] + 0.2 * updates[i]
            if i in present:
                for j in largest(momentum[i] - mirror[i], k):
                    mirror[i, j] = momentum[i, j]
        torch.testing.assert_close(sent.matrix, mirror[present])
        torch.testing.assert_close(run.kept_norms(), (momentum - mirror).norm(dim=1))
        run.aggregate(sent)


@pytest.mark.parametrize("text", ["norm-filtered(send=0.1)", "scatter-mean(send=0.1)"])
def test_own_largest_entries_are_sent_and_the_rest_is_kept(text: str) -> None:
    run, d, k = started(text), 58, 6
    memory = torch.zeros(N, d)
    for updates, present in rounds_of(d):
        sent = run.send(updates.clone(), present)
        memory += updates
        for row, i in zip(sent.matrix, present.tolist(), strict=True):
            columns = largest(memory[i], k)
            assert sorted(row.nonzero().flatten().tolist()) == sorted(columns)
            assert torch.equal(row[columns], memory[i, columns])
            memory[i, columns] = 0.0
        torch.testing.assert_close(run.kept_norms(), memory.norm(dim=1))
        run.aggregate(sent)


@pytest.mark.parametrize("report_every", [1, 2, None])
def test_the_exchange_is_that_of_the_library(report_every: int | None) -> None:
    layout, d = layout_of(), 58
    text = f"exchange(send=0.2, tile=4, report_every={report_every})"
    run = started(text, "blockwise(tile=4) | geometric-median", layout=layout)
    assert isinstance(run.rule, Aggregator)
    agreed = AgreedBlock(Tiling(layout.sizes, 4), send=0.2, report_every=report_every, seed=7)
    other = Simulation(layout, N, agreed, run.rule)
    moved = torch.zeros(d)
    for updates, present in rounds_of(d):
        sent = run.send(updates.clone(), present)
        moved[sent.block.columns] -= run.aggregate(sent).vector
        block, _ = other.round(updates, present=present.tolist())
        assert torch.equal(sent.block.tiles, block.tiles)
        assert torch.equal(moved, layout.values())
        kept = torch.stack([memory.vector.norm() for memory in other.memories])
        assert torch.equal(run.kept_norms(), kept)


def test_a_lone_sender_owns_a_column_where_a_column_is_averaged_over_its_senders() -> None:
    layout, n = layout_of(((64,), (64,))), 20
    updates = 1e-3 * torch.randn(n, 128, generator=stream(0, "updates"))
    updates[:, :64] += 1.0
    lie, column = 1e3, 100
    owned = started("scatter-mean(send=0.1)", layout=layout, n=n)
    sent = owned.send(updates.clone(), torch.arange(n))
    assert not bool(sent.matrix[:, 64:].any())
    sent.matrix[0] = 0.0
    sent.matrix[0, column] = lie
    assert float(owned.aggregate(sent).vector[column]) == lie
    agreed = started("exchange(send=0.5, tile=16)", "blockwise(tile=16) | geometric-median",
                     layout=layout, n=n)  # fmt: skip
    moved = torch.zeros(128)
    for _ in range(4):  # until all columns were sent
        sent = agreed.send(updates.clone(), torch.arange(n))
        sent.matrix[0] = 0.0
        at = (sent.block.columns == column).nonzero().flatten()
        sent.matrix[0, at] = lie
        moved[sent.block.columns] += agreed.aggregate(sent).vector
    assert abs(float(moved[column])) < 0.01
    assert float(moved[:64].min()) > 0.9


def test_attackers_have_no_more_values_than_others_in_a_scatter_mean() -> None:
    run = started("scatter-mean(send=0.1)")
    sent = run.send(torch.randn(N, 58, generator=stream(0)), torch.arange(N))
    sent.matrix[0] = torch.arange(1.0, 59.0)
    run.aggregate(sent)
    assert sent.matrix[0].nonzero().flatten().tolist() == list(range(52, 58))


@pytest.mark.parametrize("build", [mlp, small_mlp])
def test_an_exchange_of_2_percent_takes_at_most_3_percent_of_the_bytes(build: object) -> None:
    layout = Layout(build(generator=stream(0)))  # type: ignore[operator]
    run = started("exchange", layout=layout)
    for _ in range(3):
        updates = torch.randn(N, layout.d, generator=stream(1))
        sent = run.send(updates, torch.arange(N))
        assert 0.02 * 4 * layout.d < sent.n_bytes <= 0.03 * 4 * layout.d
        run.aggregate(sent)


BYTES = {
    "everything": 4 * 100,
    "exchange(send=0.1, tile=10)": 4 * 10 + 2 * 10,
    "exchange(send=0.1, tile=10, report_every=None)": 4 * 10,
    "exchange(send=0.1, tile=10, wire='bfloat16')": 2 * 10 + 2 * 10,
    "exchange(send=0.1, tile=10, wire='int8')": 10 + 4 + 2 * 10,
    "rosdhb(send=0.1)": 4 * 10,
    "byz-ef21(send=0.1)": 8 * 10,
    "norm-filtered(send=0.1)": 8 * 10,
    "scatter-mean(send=0.1)": 8 * 10,
}


def test_bytes_are_those_of_values_indices_and_reports() -> None:
    for text, n_bytes in BYTES.items():
        run = started(text, layout=layout_of(((100,),)))
        assert run.send(torch.randn(N, 100), torch.arange(N)).n_bytes == n_bytes, text


@pytest.mark.parametrize("text", SCHEMES)
def test_a_run_goes_on_from_its_state(text: str) -> None:
    layout = layout_of(((60, 70), (60,), (10, 60), (10,)))
    one, other = started(text, layout=layout), started(text, layout=layout)
    for number, (updates, present) in enumerate(rounds_of(layout.d)):
        sent = one.send(updates.clone(), present)
        wanted = one.aggregate(sent)
        if number >= 3:
            found = other.send(updates.clone(), present)
            assert torch.equal(found.matrix, sent.matrix)
            assert torch.equal(other.aggregate(found).vector, wanted.vector)
        if number == 2:
            other.load_state_dict(one.state_dict())


def test_wrong_use() -> None:
    for text, message in {
        "exchange(send=0.001)": r"`send` must be enough for one of the \d+ tiles, got 0.001\.",
        "rosdhb(send=0.001)": r"`send` must be enough for one of the 58 columns, got 0.001\.",
        "scatter-mean(send=0)": r"`send` must be in \(0, 1\], got 0\.",
        "exchange(wire='int4')": r"`wire` must be 'float32', 'bfloat16' or 'int8', got 'int4'\.",
        "exchange(send=0.5, tile=1, min_wait=9)": r"`min_wait` must be at most 2 to send .*",
        "rosdhb(momentum=1.0)": r"`momentum` must be in \[0, 1\), got 1.0\.",
    }.items():
        with pytest.raises(ValueError, match=message):
            started(text)
    with pytest.raises(ValueError, match="`rule` must be mean with scatter-mean"):
        started("scatter-mean", "geometric-median")
    assert Exchange().send == ScatterMean().send == 0.02
