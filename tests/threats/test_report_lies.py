"""Lying reports: contracts, definitions and what they move."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.threats import ReportKnowledge, ReportLie, report_lies
from tests.samples import gaussian
from tests.threats.cases import DTYPES, bits, some_bad

N, T, N_BAD = 20, 30, 8
MASK = some_bad(N, N_BAD)
every_lie = pytest.mark.parametrize("lie", [report_lies.parse(name) for name in report_lies.names])


def honest_reports(seed: int = 0) -> Tensor:
    return gaussian(N, T, seed).abs()


def known(seed: int = 1) -> ReportKnowledge:
    signal, noise = gaussian(2, T, seed).abs()
    return {"last_layer": torch.arange(T) >= 25, "signal": signal, "noise": noise}


@every_lie
def test_lies_touch_only_their_rows(lie: ReportLie) -> None:
    for dtype in DTYPES:
        reports = honest_reports().to(dtype)
        before = reports.clone()
        sent = lie(reports, MASK, **known())
        assert torch.equal(reports, before)
        assert (sent.dtype, sent.shape) == (dtype, (N, T))
        assert bits(sent[~MASK]) == bits(reports[~MASK])
        assert not torch.equal(sent[MASK], reports[MASK])
        assert not bool(sent.isinf().any())
        assert torch.equal(lie(reports, torch.zeros(N, dtype=torch.bool), **known()), reports)
        if lie.needs:
            continue
        assert bits(lie(reports, MASK)) == bits(sent)


@every_lie
def test_lies_are_their_configuration(lie: ReportLie) -> None:
    assert report_lies.from_json(json.loads(json.dumps(report_lies.to_json(lie)))) == lie
    assert report_lies.parse(report_lies.format(lie)) == lie
    assert lie.aim.endswith(".")
    assert hash(lie) == hash(report_lies.parse(lie.name))


def test_what_is_reported() -> None:
    reports, rest = honest_reports(), known()
    signal, noise = gaussian(2, T, 1).abs()

    def said(name: str) -> Tensor:
        return report_lies.parse(name)(reports, MASK, **rest)[MASK]

    assert bool((said("huge") == 1e9).all())
    assert bool((said("zero") == 0).all())
    assert bool(said("nan").isnan().all())
    assert torch.equal(said("starve")[:, :25], reports[MASK][:, :25])
    assert bool((said("starve")[:, 25:] == 0).all())
    order = sorted(range(T), key=lambda tile: float(signal[tile] / noise[tile]))
    for place, tile in enumerate(order):
        assert bool((said("low-signal")[:, tile] == (1e9 if place < 15 else 0.0)).all())


def test_tiles_without_noise_come_last() -> None:
    signal, noise = torch.tensor([1.0, 0.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    lie = report_lies.parse("low-signal")
    said = lie(torch.ones(2, 4), torch.tensor([False, True]), signal=signal, noise=noise)[1]
    assert said.tolist() == [1e9, 0.0, 0.0, 1e9]


def test_medians_over_workers_move_where_the_lies_say() -> None:
    """Which tiles a block of a third has, by the median report of 20 workers with 8 liars."""
    reports, rest = 1 + 0.2 * honest_reports(), known()
    # Tiles of the last layer are somewhat larger, so that an honest block has all of them.
    reports[:, 25:] += 0.1

    def block(name: str) -> set[int]:
        sent = report_lies.parse(name)(reports, MASK, **rest) if name else reports
        chosen: list[int] = sent.median(0).values.topk(T // 3).indices.tolist()
        return set(chosen)

    last, low = set(range(25, 30)), set()
    signal, noise = gaussian(2, T, 1).abs()
    low = set((signal / noise).argsort()[:15].tolist())
    assert last <= block("")
    assert len(last & block("starve")) <= 2
    assert len(low & block("low-signal")) >= len(low & block("")) + 3
    assert len(low & block("low-signal")) >= 9


WRONG: list[tuple[Any, Any, dict[str, Any], str]] = [
    (torch.ones(N), MASK, {}, r"`reports` must be a floating tensor \[n, T\], got \(20,\)\."),
    (None, MASK, {}, r"`reports` must be a floating tensor \[n, T\], got NoneType\."),
    (torch.ones(N, T).long(), MASK, {},
     r"`reports` must be a floating tensor \[n, T\], got \(20, 30\)\."),
    (torch.ones(N, T), MASK[1:], {}, r"`mask` must be a bool tensor \[20\], .*"),
    (torch.ones(N, T), MASK, {"signal": torch.ones(3)},
     r"`signal` must be a tensor \[30\], one entry per tile, got \(3,\)\."),
    (torch.ones(N, T), MASK, {"last_layer": [True] * T},
     r"`last_layer` must be a tensor \[30\], one entry per tile, got list\."),
]  # fmt: skip


@pytest.mark.parametrize(("reports", "mask", "rest", "message"), WRONG)
def test_wrong_arguments_are_named(
    reports: Any, mask: Any, rest: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        report_lies.parse("zero")(reports, mask, **rest)


def test_what_a_lie_needs_is_named() -> None:
    for name, missing in (("starve", "last_layer"), ("low-signal", "noise")):
        rest: Any = known() | {missing: None}
        with pytest.raises(ValueError, match=rf"^`{missing}` must be given to .*Reports\(\), got"):
            report_lies.parse(name)(honest_reports(), MASK, **rest)
