"""Threats by the text that names them."""

from dataclasses import MISSING, fields

from holdfast.lab.config._threat import Threat
from holdfast.registry import parse_call, unknown_name
from holdfast.threats import Adversaries, Corruption, attacks, corruptions

PAPER_NAMES = {
    "additive": "additive-noise",
    "bit-flip": "scaled-flip",
    "impulse": "salt-and-pepper",
}
"""What the paper calls some of the threats, and their names here."""


def threat_names() -> list[str]:
    """The names that :func:`parse_threat` knows: attacks, corruptions, and the paper's own."""
    return sorted([*attacks.names, *corruptions.names, *PAPER_NAMES])


def parse_threat(
    text: str, adversaries: Adversaries, *, whole_rows: bool = False, n_classes: int = 10
) -> Threat:
    """The threat that a text such as `"bit-flip"` or `"scaled-flip(factor=5.0)"` names: an attack on rows, or a corruption of samples.

    Args:
        text: name and arguments.
        adversaries: who is bad.
        whole_rows: whether a corruption hits whole rows.
        n_classes: what corruptions of labels are told if the text does not say.

    Example:
        >>> parse_threat("bit-flip", Adversaries(bad_fraction=0.4)).attack
        ScaledFlip(factor=100.0)
        >>> parse_threat("label-flip", Adversaries(bad_fraction=0.4)).corruption
        LabelFlip(n_classes=10)
    """
    name, arguments = parse_call(text, "attack")
    name = PAPER_NAMES.get(name, name)
    if name in attacks.names:
        return Threat(
            attack=attacks.from_json({"name": name, **arguments}),
            adversaries=adversaries,
            whole_rows=whole_rows,
        )
    if name in corruptions.names:
        if _must_be_told(corruptions[name], "n_classes"):
            arguments = {"n_classes": n_classes, **arguments}
        return Threat(
            corruption=corruptions.from_json({"name": name, **arguments}),
            adversaries=adversaries,
            whole_rows=whole_rows,
        )
    raise unknown_name("attack", threat_names(), name)


def format_threat(threat: Threat) -> str:
    """The text of a threat, such as `"scaled-flip(factor=5.0)"`; "none" if there is none."""
    parts = [] if threat.attack is None else [attacks.format(threat.attack)]
    parts += [] if threat.corruption is None else [corruptions.format(threat.corruption)]
    return " + ".join(parts) or "none"


def _must_be_told(kind: type[Corruption], argument: str) -> bool:
    return any(entry.name == argument and entry.default is MISSING for entry in fields(kind))  # type: ignore[arg-type]
