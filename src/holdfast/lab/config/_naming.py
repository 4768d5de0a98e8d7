"""What a run is called."""

import re

from holdfast.lab.config._config import Config
from holdfast.lab.config._json import hash_of
from holdfast.lab.config._rules import format_rule
from holdfast.lab.config._threat_names import format_threat

LONGEST = 180
"""Letters before the hash; file systems take 255 in all."""


def run_name(config: Config) -> str:
    """A name for the run's folder that people can read, and that no other configuration has.

    Example:
        >>> run_name(Config())
        'fashion-mnist-slice-lenet-geometric-median-seed-0-60027d14'
    """
    adversaries = config.threat.adversaries
    share = adversaries.bad_fraction if adversaries.n_bad is None else adversaries.n_bad
    threat = (
        ""
        if format_threat(config.threat) == "none"
        else f"{format_threat(config.threat)}-{share:g}"
    )
    parts = [
        config.data,
        config.model,
        format_rule(config.aggregator, config.selector, config.memory),
        threat,
        f"seed-{config.seed}",
    ]
    words = [re.sub(r"[^\w.]+", "-", part).strip("-") for part in parts if part]
    return f"{'-'.join(words)[:LONGEST].rstrip('-')}-{hash_of(config)[:8]}"
