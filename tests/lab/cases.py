"""Configurations that take no time."""

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any

from holdfast.lab.config import Config, Workers, parse_rule, parse_threat
from holdfast.lab.optimizers import Adam, AdamW, Sgd
from holdfast.lab.partitions import Dirichlet, Shards
from holdfast.lab.schemes import schemes
from holdfast.threats import Adversaries, report_lies

TINY = Config(
    model="logistic-regression", n_rows=6, row_size=4, n_steps=5, evaluate_every=3, rows_every=2
)


def tiny(
    rule: str = "geometric-median",
    threat: str = "",
    adversaries: Adversaries | None = None,
    **fields: Any,
) -> Config:
    """A tiny configuration with this rule and threat, by default for two fixed rows."""
    if threat:
        fields["threat"] = parse_threat(
            threat,
            adversaries or Adversaries(n_bad=2, redrawn=False),
            whole_rows=fields.pop("whole_rows", False),
        )
    return replace(TINY, **parse_rule(rule), **fields)


def working(scheme: str, threat: str = "", **fields: Any) -> Config:
    """A tiny configuration with workers, and the rule that suits their scheme."""
    names = [entry.name for entry in dataclass_fields(Workers)]
    given = {name: fields.pop(name) for name in names if name in fields}
    known, lie = schemes.parse(scheme), fields.pop("lie", None)
    rule = "norm-filter(n_bad=2)" if scheme.startswith("norm-filtered") else known.default_rule
    fields = {"optimizer": Sgd(lr=0.05), **fields}
    config = tiny(rule, threat, workers=Workers(scheme=known, **given), **fields)
    if lie is None:
        return config
    return replace(config, threat=replace(config.threat, lie=report_lies.parse(lie)))


RUNS: dict[str, Config] = {
    "bgmd with momentum": tiny(
        "bgmd(units='gradient')",
        "scaled-flip",
        Adversaries(bad_fraction=0.4),
        optimizer=Sgd(lr=0.01, momentum=0.9),
        model="tiny-cnn",
    ),
    "bgmd in units of parameters": tiny("bgmd", "noisy-rows", optimizer=Sgd(lr=0.05)),
    "adam": tiny(optimizer=Adam(lr=0.01, weight_decay=0.1), model="tiny-cnn"),
    "nesterov and decay": tiny(
        "krum(n_bad=1)",
        "noisy-rows(deviation=200.0, replace=True)",
        Adversaries(n_bad=1),
        optimizer=Sgd(momentum=0.5, nesterov=True, weight_decay=0.1),
    ),
    "bgmd-published": tiny("bgmd-published", "scaled-flip", optimizer=Sgd(lr=0.05)),
    "bgmd-paper": tiny("bgmd-paper", "ieee-bit-flips", optimizer=Sgd(lr=0.05)),
    "worker momentum": tiny(
        "trimmed-mean(n_bad=2)",
        "little-is-enough",
        partition=Shards(n_shards=12),
        worker_momentum=0.9,
    ),
    "average": tiny("mean", "scaled-flip", model="tiny-cnn", average=0.9),
    "mimic": tiny(
        "bucketing(bucket_size=2) | geometric-median", "mimic", partition=Dirichlet(alpha=0.3)
    ),
    "huddle": tiny(
        "geometric-median", "huddle(direction='wrong-labels')", Adversaries(n_bad=2), n_trusted=30
    ),
    "huddle in tiles": tiny(
        "blockwise(tile=64) | geometric-median",
        "late(start=1) | huddle(direction='drift')",
        Adversaries(n_bad=2),
    ),
    "lazy rows": tiny("coordinate-median", "lazy-rows", Adversaries(n_bad=2)),
    "centered clipping": tiny("centered-clipping(radius=1.0)", "scaled-flip"),
    "zeno": tiny("zeno(n_bad=2)", "scaled-flip(factor=1.0)", n_trusted=50),
    "trusted reference": tiny("trusted-reference", "scaled-flip(factor=1.0)", n_trusted=50),
    "sketch": tiny("sketched | geometric-median", "non-finite", model="mlp"),
    "corrupted samples": tiny("geometric-median", "salt-and-pepper", Adversaries(bad_fraction=0.3)),
    "backdoor": tiny(
        "mean", "backdoor(target=2)", Adversaries(n_bad=2, redrawn=False), whole_rows=True
    ),
    "exchange": working("exchange(send=0.1)", "huddle(direction='wrong-labels')"),
    "exchange of rounded values, with local steps": working(
        "exchange(send=0.1, tile=16, report_every=2, wire='int8')",
        "mimic",
        local_steps=2,
        outer_momentum=0.5,
        absent=0.2,
        optimizer=AdamW(lr=0.01),
        model="tiny-cnn",
    ),
    "random block": working(
        "exchange(send=0.1, report_every=None, beta=0.9)", "lazy-rows", absent=0.2, average=0.8
    ),
    "everything, with worker momentum": working(
        "everything", "little-is-enough", worker_momentum=0.9, partition=Shards(n_shards=12)
    ),
    "lying reports": working(
        "exchange(send=0.1)",
        "huddle",
        lie="low-signal",
        absent=0.2,
    ),
    "rosdhb": working("rosdhb(send=0.1)", "scaled-flip"),
    "byz-ef21": working("byz-ef21(send=0.1)", "noisy-rows", absent=0.2),
    "norm-filtered": working("norm-filtered(send=0.1)", "inner-product"),
    "scatter-mean": working("scatter-mean(send=0.1)", "huddle"),
}
"""Runs with every kind of thing that goes on from step to step."""
