"""Wrong arguments are refused by a sentence that names the argument."""

import re
from typing import Any

import pytest
import torch

from holdfast.seeds import stream
from holdfast.threats import (
    Backdoor,
    Blur,
    BoundedDistance,
    GaussianNoise,
    Hijack,
    Huddle,
    IeeeBitFlips,
    InnerProduct,
    Late,
    LittleIsEnough,
    NoisyRows,
    NonFinite,
    SaltAndPepper,
    ScaledFlip,
    Shadow,
    WrongLabels,
    attacks,
    corruptions,
)
from tests.samples import gaussian
from tests.threats.cases import refusal

POSITIVE = "be a finite number above 0"
SHARE = r"be in \(0, 1\]"

NUMBER = "be a finite number of at least 0"
COUNT = "be a whole number of at least "
CLASS = "be 'flip', 'random' or a class from 0 to 9"


def late(**arguments: Any) -> Late:
    """One of its arguments is wrong, the other is not."""
    return Late(**{"start": 1, "attack": ScaledFlip(), **arguments})


late.__name__ = "Late"

OUT_OF_RANGE: list[tuple[Any, str, list[Any], str]] = [
    *((kind, name, [0.0, -1.0, float("inf"), float("nan"), "1", True], POSITIVE) for kind, name in (
        (NoisyRows, "deviation"), (InnerProduct, "factor"), (Hijack, "columns"), (Hijack, "size"),
        (Hijack, "lie"), (GaussianNoise, "deviation"), (Blur, "sigma"),
    )),
    *((kind, name, [None], POSITIVE) for kind, name in (
        (NoisyRows, "deviation"), (InnerProduct, "factor"), (Hijack, "columns"), (Hijack, "size"),
        (GaussianNoise, "deviation"), (Blur, "sigma"),
    )),
    *((kind, "fraction", [0.0, -0.1, 1.1, float("nan"), "1", True], SHARE)
      for kind in (IeeeBitFlips, Shadow, SaltAndPepper)),
    (ScaledFlip, "factor", [-1.0, float("inf"), float("nan"), "1", True, None], NUMBER),
    (NoisyRows, "replace", [1, 0, None, "yes"], "be True or False"),
    (IeeeBitFlips, "bits", [(), (1, 1), 5, None], "be distinct positions of bits, at least one"),
    (IeeeBitFlips, "bits", [(-1,), (2.0,), (True, 2)], COUNT + "0"),
    (NonFinite, "value", ["NaN", float("nan"), None], "be 'nan', 'inf' or '-inf'"),
    (LittleIsEnough, "z", [-0.1, float("inf"), "1"], NUMBER),
    (BoundedDistance, "bound", ["min", None], "be 'max' or 'sum'"),
    (BoundedDistance, "direction", ["mean", None], "be 'unit', 'sign' or 'std'"),
    (Huddle, "direction", ["unit", "first_layer", None],
     "be 'mean', 'std', 'first-layer', 'class', 'true-gradient', 'wrong-labels' or 'drift'"),
    (late, "start", [-1, 2.0, True, None], COUNT + "0"),
    (late, "attack", [None, 3, Blur()], "be an Attack"),
    (Hijack, "columns", [2.5, 1.5], "be below 1 or a whole number"),
    (WrongLabels, "labels", [-1, 10, 2.0, True, "flop", None, ["flip"]], CLASS),
    (WrongLabels, "n_classes", [1, 2.0, True], COUNT + "2"),
    (Backdoor, "target", [-1, 2.0, True], COUNT + "0"),
    (Backdoor, "size", [0, 2.0, True], COUNT + "1"),
    (Backdoor, "value", [-0.5, float("inf"), "1"], NUMBER),
]  # fmt: skip


def test_arguments_out_of_range() -> None:
    for kind, name, values, requirement in OUT_OF_RANGE:
        for value in values:
            message = refusal(kind, **{name: value})
            wanted = rf"`{name}` must {requirement}, got .*\."
            assert re.fullmatch(wanted, message), (kind.__name__, name, value, message)


def test_every_argument_is_checked() -> None:
    """Each field of each threat is in the list above."""
    members = [
        *map(attacks.__getitem__, attacks.names),
        *map(corruptions.__getitem__, corruptions.names),
    ]
    wanted = {
        (member.__name__, field)
        for member in members
        for field in member.__dataclass_fields__  # type: ignore[attr-defined]
    }
    assert {(kind.__name__, name) for kind, name, _, _ in OUT_OF_RANGE} == wanted


MASK = torch.tensor([True, False, False])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bits_beyond_the_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(
        ValueError, match=rf"^`bits` must be below 16, the width of {dtype}, got 31\.$"
    ):
        IeeeBitFlips()(gaussian(3, 4, dtype=dtype), MASK)
    with pytest.raises(
        ValueError, match=r"^`bits` must be below 32, the width of torch\.float32, got 32\.$"
    ):
        IeeeBitFlips(bits=(32,))(gaussian(3, 4), MASK)


@pytest.mark.parametrize(("rows", "message"), [
    (torch.ones(3),
     r"`rows` must have shape \[n, d\] \(or be a list of \[n, \.\.\.\] tensors\), got \(3,\)\."),
    (torch.ones(3, 2, 2), r"`rows` must have shape \[n, d\] .*, got \(3, 2, 2\)\."),
    (torch.ones(3, 2, dtype=torch.int64),
     r"`rows` must be real floating point .*, got torch\.int64\."),
    ([torch.ones(3, 2), torch.ones(4, 2)], r"`rows` must agree on the number of rows .*, got 4\."),
    (None, r"`rows` must be a tensor \[n, d\] or a list of tensors \[n, \.\.\.\], got NoneType\."),
])  # fmt: skip
def test_rows_of_a_wrong_kind(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ScaledFlip()(rows, MASK)
    with pytest.raises(ValueError, match=f"^{message}$"):
        ScaledFlip().learn(rows, MASK)


def test_labels_of_other_classes() -> None:
    images, labels = torch.zeros(3, 1, 4, 4), torch.tensor([10, 2, 0])
    for corruption in (WrongLabels(), WrongLabels(labels="random"), WrongLabels(labels=8)):
        with pytest.raises(ValueError, match=r"^`labels` must be from 0 to 9, got 10 to 10\.$"):
            corruption(images, labels, MASK, generator=stream(0, "labels"))


def test_backdoors_need_room_and_other_classes() -> None:
    images, labels = torch.zeros(3, 1, 2, 4), torch.tensor([0, 0, 0])
    needed = (
        r"^`images` must have at least 3 by 3 pixels \(needed by Backdoor\(.*\)\), got \(1, 1, 2, 4"
    )
    with pytest.raises(ValueError, match=needed):
        Backdoor()(images, labels, MASK)
    with pytest.raises(
        ValueError, match=r"^`labels` must hold another class than the target 0, got none\.$"
    ):
        Backdoor(size=1).success_rate(lambda images: torch.zeros(len(images)), images, labels)


def test_unknown_names_are_told_the_nearest() -> None:
    with pytest.raises(
        ValueError,
        match=r"^`attack` must be one of .*, got 'scaled-flop' \(did you mean 'scaled-flip'\?\)\.$",
    ):
        attacks.parse("scaled-flop")
    with pytest.raises(
        ValueError,
        match=r"^`corruption` must be one of .*, got 'blurr' \(did you mean 'blur'\?\)\.$",
    ):
        corruptions.parse("blurr")
    with pytest.raises(
        ValueError,
        match=r"^`hijack` must be given only columns, size, lie, got 'share'\.$",
    ):
        attacks.parse("hijack(share=0.5)")


def test_one_optimized_z_cannot_be_told_before_the_step() -> None:
    needed = "be a number or None, which do not depend on the rows"
    with pytest.raises(ValueError, match=rf"^`z` must {needed}, got optimized\.$"):
        LittleIsEnough(z="optimized").deviations(20, 8)
