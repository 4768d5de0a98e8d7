"""Rules and steps by the text that names them."""

from dataclasses import replace
from typing import Any

from holdfast.aggregators import Aggregator, rules
from holdfast.checks import failure
from holdfast.memory import Memory, ResidualMemory, memories
from holdfast.registry import Registry, parse_call, unknown_name
from holdfast.robust_step import SketchedGeometricMedian, preset, presets
from holdfast.selectors import Selector, selectors

all_rules: Registry[Aggregator] = Registry(
    "rule", [*(rules[name] for name in rules.names), SketchedGeometricMedian], inner="aggregator"
)
"""Every rule by its short name, with the one that draws columns itself."""


def rule_names() -> list[str]:
    """The names that :func:`parse_rule` knows: presets and rules."""
    return sorted([*presets, *all_rules.names])


def parse_rule(
    text: str, *, selector: str | None = None, memory: str | None = None, is_exact: bool = True
) -> dict[str, Any]:
    """The parts of a step: a preset such as `"bgmd(fraction=0.05)"`, or a rule such as `"krum(n_bad=3)"` with a selector and a memory.

    Args:
        text: the preset or the rule.
        selector: in place of the preset's own, or of all columns.
        memory: in place of the preset's own, or of none.
        is_exact: whether a memory in units of parameters is exact under the run's optimizer and schedule. If it is not, memories that the texts do not give
            units are in units of gradients.

    Example:
        >>> parse_rule("bgmd", is_exact=False)["memory"]
        RobustMemory(units='gradient')
    """
    names = [stage.split("(")[0].strip() for stage in text.split("|")]
    for name in names:
        if name.replace("-", "_").isidentifier() and name not in rule_names():
            raise unknown_name("rule", rule_names(), name)
        if name in presets and len(names) > 1:
            raise failure(name, "stand alone, because it is a whole step", text)
    parts: dict[str, Any]
    if names[0] in presets:
        step = preset(text)
        parts = {"aggregator": step.aggregator, "selector": step.selector, "memory": step.memory}
    else:
        parts = {"aggregator": all_rules.parse(text)}
    if selector is not None:
        parts["selector"] = selectors.parse(selector)
    if memory is not None:
        parts["memory"] = memories.parse(memory)
    if not is_exact and isinstance(parts.get("memory"), ResidualMemory):
        _, arguments = parse_call(text if memory is None else memory, "memory")
        if "units" not in arguments:
            parts["memory"] = _in_units_of_gradients(parts["memory"])
    return parts


def format_rule(aggregator: Aggregator, selector: Selector, memory: Memory) -> str:
    """A short name for the step: the preset's where it is one, whatever its units, else the rule's with selector and memory."""
    for name in presets:
        step = preset(name)
        if (aggregator, selector, type(memory)) == (
            step.aggregator,
            step.selector,
            type(step.memory),
        ):
            return name
    parts = [all_rules.format(aggregator)]
    if not selector.takes_everything:
        parts += [selectors.format(selector), memories.format(memory)]
    return " + ".join(parts)


def _in_units_of_gradients(memory: Memory) -> Memory:
    return replace(memory, units="gradient")  # type: ignore[type-var]
