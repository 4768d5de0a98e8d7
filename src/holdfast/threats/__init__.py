"""Attacks on rows, corruptions of batches, lying reports, and the choice of who is bad."""

from holdfast.threats._adversaries import Adversaries, rows_to_samples
from holdfast.threats._attack import Attack, Knowledge, attacks
from holdfast.threats._attack_context import AttackContext, Rule, State
from holdfast.threats._backdoor import Backdoor
from holdfast.threats._blur import Blur
from holdfast.threats._bounded_distance import BoundedDistance
from holdfast.threats._collapse import Collapse
from holdfast.threats._corruption import Corruption, corruptions
from holdfast.threats._gaussian_noise import GaussianNoise
from holdfast.threats._hijack import Hijack
from holdfast.threats._huddle import Huddle
from holdfast.threats._ieee_bit_flips import IeeeBitFlips
from holdfast.threats._inner_product import InnerProduct
from holdfast.threats._late import Late
from holdfast.threats._lazy_rows import LazyRows
from holdfast.threats._little_is_enough import LittleIsEnough
from holdfast.threats._mimic import Mimic
from holdfast.threats._noisy_rows import NoisyRows
from holdfast.threats._non_finite import NonFinite
from holdfast.threats._report_lie import ReportKnowledge, ReportLie, report_lies
from holdfast.threats._report_lies import (
    HugeReports,
    LowSignalReports,
    NanReports,
    StarvingReports,
    ZeroReports,
)
from holdfast.threats._rule_trials import RuleTrials, line_search, line_searches, rule_trials
from holdfast.threats._salt_and_pepper import SaltAndPepper
from holdfast.threats._scaled_flip import ScaledFlip
from holdfast.threats._shadow import Shadow
from holdfast.threats._tile_trials import TileTrials
from holdfast.threats._wrong_labels import WrongLabels

__all__ = [
    "Adversaries",
    "Attack",
    "AttackContext",
    "Backdoor",
    "Blur",
    "BoundedDistance",
    "Collapse",
    "Corruption",
    "GaussianNoise",
    "Hijack",
    "Huddle",
    "HugeReports",
    "IeeeBitFlips",
    "InnerProduct",
    "Knowledge",
    "Late",
    "LazyRows",
    "LittleIsEnough",
    "LowSignalReports",
    "Mimic",
    "NanReports",
    "NoisyRows",
    "NonFinite",
    "ReportKnowledge",
    "ReportLie",
    "Rule",
    "RuleTrials",
    "SaltAndPepper",
    "ScaledFlip",
    "Shadow",
    "StarvingReports",
    "State",
    "TileTrials",
    "WrongLabels",
    "ZeroReports",
    "attacks",
    "corruptions",
    "line_search",
    "line_searches",
    "report_lies",
    "rows_to_samples",
    "rule_trials",
]
