"""Wrong arguments: one sentence that names the argument."""

from typing import Any

import pytest
import torch

from holdfast.seeds import stream
from holdfast.threats import (
    AdditiveNoise,
    Backdoor,
    BitFlips,
    Blur,
    GaussianNoise,
    Hijack,
    HijackAndLie,
    InnerProduct,
    LabelFlip,
    LittleIsEnough,
    MinMax,
    MinSum,
    NonFinite,
    RandomLabels,
    RandomRows,
    SaltAndPepper,
    ScaledFlip,
    Shadow,
    SignFlip,
    TargetLabel,
    attacks,
    corruptions,
)
from tests.samples import gaussian

POSITIVE = "be a finite number above 0"
SHARE = r"be in \(0, 1\]"

OUT_OF_RANGE: list[tuple[Any, str, list[Any], str]] = [
    *((kind, name, [0.0, -1.0, float("inf"), float("nan"), "1", True, None], POSITIVE) for kind, name in (
        (AdditiveNoise, "deviation"), (RandomRows, "deviation"), (ScaledFlip, "factor"), (InnerProduct, "factor"), (Hijack, "size"),
        (HijackAndLie, "size"), (HijackAndLie, "lie"), (GaussianNoise, "deviation"), (Blur, "sigma"),
    )),
    *((kind, "fraction", [0.0, -0.1, 1.1, float("nan"), "1", True], SHARE) for kind in (BitFlips, Shadow, HijackAndLie, SaltAndPepper)),
    (BitFlips, "bits", [(), (1, 1), 5, None], "be places of bits, at least one and none twice"),
    (BitFlips, "bits", [(-1,), (2.0,), (True, 2)], "be a whole number of at least 0"),
    (NonFinite, "value", ["NaN", float("nan"), None], "be 'nan', 'inf' or '-inf'"),
    (LittleIsEnough, "z", [-0.1, float("inf"), "1"], "be a finite number of at least 0"),
    (MinMax, "direction", ["mean", None], "be 'unit', 'sign' or 'std'"),
    (MinSum, "direction", ["mean", None], "be 'unit', 'sign' or 'std'"),
    (Hijack, "n_columns", [0, -1, 2.5, True], "be a whole number of at least 1"),
    (TargetLabel, "target", [-1, 2.0, True], "be a whole number of at least 0"),
    (Backdoor, "target", [-1, 2.0, True], "be a whole number of at least 0"),
    (Backdoor, "size", [0, 2.0, True], "be a whole number of at least 1"),
    (Backdoor, "value", [-0.5, float("inf"), "1"], "be a finite number of at least 0"),
    (LabelFlip, "n_classes", [1, 2.0, True], "be a whole number of at least 2"),
    (RandomLabels, "n_classes", [1, 2.0, True], "be a whole number of at least 2"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "values", "requirement"), OUT_OF_RANGE)
def test_arguments_out_of_range(kind: Any, name: str, values: list[Any], requirement: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^`{name}` must {requirement}, got .*\.$"):
            kind(**{name: value})


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
        BitFlips()(gaussian(3, 4, dtype=dtype), MASK)
    with pytest.raises(
        ValueError, match=r"^`bits` must be below 32, the width of torch\.float32, got 32\.$"
    ):
        BitFlips(bits=(32,))(gaussian(3, 4), MASK)


@pytest.mark.parametrize(("rows", "message"), [
    (torch.ones(3), r"`rows` must have shape \[n, d\] \(or be a list of \[n, \.\.\.\] tensors\), got \(3,\)\."),
    (torch.ones(3, 2, 2), r"`rows` must have shape \[n, d\] .*, got \(3, 2, 2\)\."),
    (torch.ones(3, 2, dtype=torch.int64), r"`rows` must be real floating point .*, got torch\.int64\."),
    ([torch.ones(3, 2), torch.ones(4, 2)], r"`rows` must agree on the number of rows .*, got 4\."),
    (None, r"`rows` must be a tensor \[n, d\] or a list of tensors \[n, \.\.\.\], got NoneType\."),
])  # fmt: skip
def test_rows_of_a_wrong_kind(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        SignFlip()(rows, MASK)
    with pytest.raises(ValueError, match=f"^{message}$"):
        SignFlip().learn(rows, MASK)


def test_labels_of_other_classes() -> None:
    images, labels = torch.zeros(3, 1, 4, 4), torch.tensor([10, 2, 0])
    for corruption in (LabelFlip(), RandomLabels()):
        with pytest.raises(ValueError, match=r"^`labels` must be from 0 to 9, got 10 to 10\.$"):
            corruption(images, labels, MASK, generator=stream(0, "labels"))


def test_backdoors_need_room_and_other_classes() -> None:
    images, labels = torch.zeros(3, 1, 2, 4), torch.tensor([0, 0, 0])
    with pytest.raises(
        ValueError,
        match=r"^`images` must have at least 3 by 3 pixels \(needed by Backdoor\(.*\)\), got \(1, 1, 2, 4\)\.$",
    ):
        Backdoor()(images, labels, MASK)
    with pytest.raises(
        ValueError, match=r"^`labels` must hold another class than the target 0, got none\.$"
    ):
        Backdoor(size=1).success_rate(lambda images: torch.zeros(len(images)), images, labels)


def test_unknown_names_are_told_the_nearest() -> None:
    with pytest.raises(
        ValueError,
        match=r"^`attack` must be one of .*, got 'sign-flop' \(did you mean 'sign-flip'\?\)\.$",
    ):
        attacks.parse("sign-flop")
    with pytest.raises(
        ValueError,
        match=r"^`corruption` must be one of .*, got 'blurr' \(did you mean 'blur'\?\)\.$",
    ):
        corruptions.parse("blurr")
    with pytest.raises(
        ValueError, match=r"^`hijack` must be given n_columns, size, got 'share'\.$"
    ):
        attacks.parse("hijack(share=0.5)")
