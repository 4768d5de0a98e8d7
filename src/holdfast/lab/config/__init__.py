"""The configuration of a run: a frozen tree of parts, with JSON, a hash and names."""

from holdfast.lab.config._config import Config, step_of
from holdfast.lab.config._texts import (
    config_from_json,
    config_to_json,
    format_average,
    format_rule,
    format_threat,
    hash_of,
    parse_rule,
    parse_threat,
    rule_names,
    run_name,
    threat_names,
)
from holdfast.lab.config._threat import Threat
from holdfast.lab.config._workers import Workers

__all__ = [
    "Config",
    "Threat",
    "Workers",
    "config_from_json",
    "config_to_json",
    "format_average",
    "format_rule",
    "format_threat",
    "hash_of",
    "parse_rule",
    "parse_threat",
    "rule_names",
    "run_name",
    "step_of",
    "threat_names",
]
