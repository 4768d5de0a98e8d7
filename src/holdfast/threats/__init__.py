"""Makes things worse on purpose: attacks on rows, corruptions of batches, and who is bad."""

from holdfast.registry import Registry
from holdfast.threats._additive_noise import AdditiveNoise
from holdfast.threats._adversaries import Adversaries, rows_to_samples
from holdfast.threats._attack import Attack
from holdfast.threats._attack_context import AttackContext, State
from holdfast.threats._backdoor import Backdoor
from holdfast.threats._bit_flips import BitFlips
from holdfast.threats._blur import Blur
from holdfast.threats._collapse import Collapse
from holdfast.threats._corruption import Corruption
from holdfast.threats._gaussian_noise import GaussianNoise
from holdfast.threats._hijack import Hijack
from holdfast.threats._hijack_and_lie import HijackAndLie
from holdfast.threats._inner_product import InnerProduct
from holdfast.threats._label_flip import LabelFlip
from holdfast.threats._lazy_rows import LazyRows
from holdfast.threats._little_is_enough import LittleIsEnough
from holdfast.threats._mimic import Mimic
from holdfast.threats._min_max import MinMax
from holdfast.threats._min_sum import MinSum
from holdfast.threats._non_finite import NonFinite
from holdfast.threats._random_labels import RandomLabels
from holdfast.threats._random_rows import RandomRows
from holdfast.threats._salt_and_pepper import SaltAndPepper
from holdfast.threats._scaled_flip import ScaledFlip
from holdfast.threats._shadow import Shadow
from holdfast.threats._sign_flip import SignFlip
from holdfast.threats._target_label import TargetLabel
from holdfast.threats._zero_rows import ZeroRows

__all__ = [
    "AdditiveNoise",
    "Adversaries",
    "Attack",
    "AttackContext",
    "Backdoor",
    "BitFlips",
    "Blur",
    "Collapse",
    "Corruption",
    "GaussianNoise",
    "Hijack",
    "HijackAndLie",
    "InnerProduct",
    "LabelFlip",
    "LazyRows",
    "LittleIsEnough",
    "Mimic",
    "MinMax",
    "MinSum",
    "NonFinite",
    "RandomLabels",
    "RandomRows",
    "SaltAndPepper",
    "ScaledFlip",
    "Shadow",
    "SignFlip",
    "State",
    "TargetLabel",
    "ZeroRows",
    "attacks",
    "corruptions",
    "rows_to_samples",
]

attacks: Registry[Attack] = Registry(
    "attack",
    [
        AdditiveNoise,
        BitFlips,
        Collapse,
        Hijack,
        HijackAndLie,
        InnerProduct,
        LazyRows,
        LittleIsEnough,
        Mimic,
        MinMax,
        MinSum,
        NonFinite,
        RandomRows,
        ScaledFlip,
        Shadow,
        SignFlip,
        ZeroRows,
    ],
)
"""Every attack by its short name: `attacks.parse("scaled-flip(factor=5.0)")`."""

corruptions: Registry[Corruption] = Registry(
    "corruption",
    [Backdoor, Blur, GaussianNoise, LabelFlip, RandomLabels, SaltAndPepper, TargetLabel],
)
"""Every corruption by its short name: `corruptions.parse("salt-and-pepper(fraction=0.5)")`."""
