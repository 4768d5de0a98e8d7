"""The configuration of a run: one frozen tree, with JSON and a hash."""

from holdfast.lab.config._config import Config
from holdfast.lab.config._json import config_from_json, config_to_json, hash_of
from holdfast.lab.config._naming import run_name
from holdfast.lab.config._rules import all_rules, format_rule, parse_rule, rule_names
from holdfast.lab.config._threat import Threat
from holdfast.lab.config._threat_names import PAPER_NAMES, format_threat, parse_threat, threat_names

__all__ = [
    "PAPER_NAMES",
    "Config",
    "Threat",
    "all_rules",
    "config_from_json",
    "config_to_json",
    "format_rule",
    "format_threat",
    "hash_of",
    "parse_rule",
    "parse_threat",
    "rule_names",
    "run_name",
    "threat_names",
]
