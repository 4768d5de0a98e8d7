"""Presets by name, and the one sentence that each wrong argument or state gets."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from holdfast import RobustStep, SelectFirstStep, bgmd, preset
from holdfast.aggregators import GeometricMedian, Krum, Mean, Sketched
from holdfast.errors import UnknownNameError
from holdfast.robust_step import MeanMemory, Memory, NoMemory, RowMemory, memories, presets
from holdfast.selectors import NormSampling, TopNorm
from tests.robust_step.steps import MEMORIES, same_state
from tests.samples import gaussian


def test_presets_by_name() -> None:
    assert list(presets) == ["bgmd", "bgmd-paper", "bgmd-published"]
    ours, paper, published = (preset(f"{name}(fraction=0.05)") for name in presets)
    assert isinstance(ours, RobustStep)
    assert ours.rule == Sketched(rule="geometric-median")
    assert (ours.selector, ours.units) == (TopNorm(fraction=0.05, tile=1), "parameter")
    assert isinstance(paper, SelectFirstStep)
    assert isinstance(published, SelectFirstStep)
    assert paper.rule == published.rule == GeometricMedian()
    assert paper.selector == NormSampling(fraction=0.05, tile=1, capped=False)
    assert published.selector == TopNorm(fraction=0.05, tile=1, capped=False)
    assert (paper.memory, published.memory) == (MeanMemory(), RowMemory())
    assert preset("bgmd").selector == TopNorm(fraction=0.1, tile=1)
    assert preset("bgmd(rule='krum(n_bad=2)')").rule == Krum(n_bad=2)
    text = (
        "RobustStep(Krum(n_bad=2, bad_fraction=None, relaxed=False), selector=TopNorm(fraction=0.1"
    )
    assert repr(bgmd(rule=Krum(n_bad=2))).startswith(text)


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_memories_by_name(memory: Memory) -> None:
    assert memories.from_json(memories.to_json(memory)) == memory
    assert memories.parse(memories.format(memory)) == memory


def test_bad_names_of_presets() -> None:
    names = "bgmd, bgmd-paper, bgmd-published"
    message = rf"^`preset` must be one of {names}, got 'bgmf' \(did you mean 'bgmd'\?\)\.$"
    with pytest.raises(UnknownNameError, match=message):
        preset("bgmf")


SAMPLING, ROWS = NormSampling(fraction=0.1), gaussian(3, 4)
NEGATIVE = torch.tensor([1.0, -1.0, 1.0, 1.0])
# Without types, because the arguments are wrong.
delivers: Any = RobustStep
selects: Any = SelectFirstStep
named: Any = preset
mean_memory: Any = MeanMemory
sampling: Any = NormSampling
call: Any = bgmd()

UNITS = "`units` must be 'parameter' or 'gradient', got 'metres'."
NUMBER = "`lr` must be a finite number of at least 0, got "
BAD_ARGUMENTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: named("bgmd(k=3)"), "`bgmd` must be given only fraction, tile, units, rule, got 'k'."),
    (lambda: named(5), "`preset` must have the form 'name(argument=value)', got 5."),
    (lambda: named("bgmd(fraction=2)"), "`fraction` must be in (0, 1], got 2."),
    (lambda: delivers(3), "`rule` must be an Aggregator, got int."),
    (
        lambda: delivers(GeometricMedian),
        "`rule` must be an Aggregator, got the class GeometricMedian.",
    ),
    (lambda: delivers("krumm(n_bad=1)"), "`rule` must be one of "),
    (lambda: delivers("mean", selector=0.1), "`selector` must be a Selector, got float."),
    (lambda: delivers("mean", units="metres"), UNITS),
    (lambda: mean_memory(units="metres"), UNITS),
    (
        lambda: selects("mean", selector=SAMPLING, memory="mean"),
        "`memory` must be a Memory, got str.",
    ),
    (
        lambda: selects("mean", selector=None, memory=NoMemory()),
        "`selector` must be a Selector, got NoneType.",
    ),
    (lambda: delivers("mean", generator=3), "`generator` must be a torch.Generator, got int."),
    (lambda: sampling(fraction=0.1, capped="no"), "`capped` must be True or False, got 'no'."),
    (lambda: call(ROWS), "`lr` must be given, because RobustStep(Sketched("),
    (lambda: call(ROWS, lr=-1.0), f"{NUMBER}-1.0."),
    (lambda: call(ROWS, lr="0.1"), f"{NUMBER}0.1."),
    (lambda: call(ROWS, lr=NEGATIVE), "`lr` must be finite and not negative"),
    (
        lambda: call(ROWS, lr=torch.tensor(True)),
        "`lr` must be a dense floating tensor, got torch.bool.",
    ),
    (lambda: bgmd(units="gradient")(ROWS, lr=float("inf")), f"{NUMBER}inf."),
]


@pytest.mark.parametrize(
    ("attempt", "message"), BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS]
)
def test_bad_arguments_are_named(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        attempt()
    assert str(caught.value).startswith(message)


def test_rows_of_another_shape_are_refused() -> None:
    delivers = bgmd(fraction=0.5)
    per_row = SelectFirstStep("mean", selector=NormSampling(fraction=0.5), memory=RowMemory())
    refused = r"^`rows` must have the {} of what is carried, \({}\), got \({}\)\.$"
    for step in (delivers, per_row):
        step(gaussian(5, 8), lr=0.1)
    with pytest.raises(ValueError, match=refused.format("columns", "8,", "9,")):
        delivers(gaussian(5, 9), lr=0.1)
    delivers(gaussian(4, 8), lr=0.1)
    for shape in ((5, 9), (4, 8)):
        got = "{}, {}".format(*shape)
        with pytest.raises(ValueError, match=refused.format("rows and columns", "5, 8", got)):
            per_row(gaussian(*shape), lr=0.1)


def test_states_that_do_not_fit_are_refused_and_change_nothing() -> None:
    step = bgmd(fraction=0.5)
    step(gaussian(5, 8), lr=0.1)
    good = step.state_dict()
    keys = "`state` must be a mapping with the keys carried, generator, n_steps"
    shape = "`state['carried']` must be None or a tensor [d] for RobustStep("
    generator = "`state['generator']` must be the state of a torch.Generator, got"
    bad: list[tuple[object, str]] = [
        (5, f"{keys}, got int."),
        ({"carried": None}, f"{keys}, got ['carried']."),
        (good | {"carried": torch.zeros(5, 8)}, shape),
        (good | {"carried": [0.0] * 8}, shape),
        (good | {"carried": torch.zeros(8).to_sparse()}, shape),
        (good | {"carried": torch.zeros(8, device="meta")}, shape),
        (good | {"carried": torch.zeros(8, dtype=torch.int64)}, shape),
        (
            good | {"carried": torch.zeros(9)},
            "`state['carried']` must have the shape (8,) of what is carried, got (9,).",
        ),
        (
            good | {"carried": torch.full((8,), float("nan"))},
            "`state['carried']` must be finite, got NaN or infinity.",
        ),
        (
            good | {"n_steps": -1},
            "`state['n_steps']` must be a whole number of at least 0, got -1.",
        ),
        (good | {"generator": torch.zeros(3, dtype=torch.uint8)}, generator),
        (good | {"generator": None}, generator),
    ]
    for state, message in bad:
        with pytest.raises(ValueError, match="must") as caught:
            step.load_state_dict(state)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)
    assert same_state(step.state_dict(), good)
    without = SelectFirstStep(Mean(), selector=SAMPLING, memory=NoMemory())
    with pytest.raises(ValueError, match=r"must be None for SelectFirstStep\(.* of shape \(8,\)"):
        without.load_state_dict(good)
