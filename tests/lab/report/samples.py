"""Runs, measurements and studies to make reports of."""

import base64
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.lab.config import Config, config_to_json
from holdfast.lab.records import (
    Journal,
    MeasurementRecord,
    Study,
    Summary,
    config_hash,
    create_record,
    write_measurement,
    write_study,
)
from holdfast.lab.report import Collection, Section, study_section
from holdfast.lab.report.figures import (
    AccuracyTable,
    Curves,
    Measured,
    MeasuredPanel,
    MeasuredValue,
    PaperCell,
    Pictures,
    Points,
    RowWeights,
    Scatter,
    TableRow,
    TimeSplit,
    View,
)

N_STEPS = 40
HOSTILE = "<script>alert(1)</script> & 50 % of $d_1$ | [x](y) `z` ~^{}\\"
METHODS = ("SGD", "GmD", "BGmD")
BAD_SHARES = (0.0, 0.4)


def config(method: str = "SGD", share: float = 0.0, seed: int = 0, **more: Any) -> dict[str, Any]:
    threat = {
        "attack": {"name": "collapse"} if share else None,
        "corruption": None,
        "adversaries": {"bad_fraction": share, "n_bad": None},
    }
    rule = {
        "rule": {"name": method.lower()},
        "selector": {"name": "everything"},
        "memory": {"name": "none"},
    }
    return {
        "data": "digits",
        "model": "mlp",
        **rule,
        "threat": threat,
        "n_steps": N_STEPS,
        "seed": seed,
        **more,
    }


def entries(
    n: int,
    *,
    accuracy: float = 0.8,
    n_rows: int = 6,
    n_bad: int = 2,
    every: int = 10,
    weighted: bool = True,
) -> list[dict[str, Any]]:
    """As a run writes them: at every tenth step an evaluation and the rows."""
    found = []
    for step in range(1, n + 1):
        seconds = {"data": 0.001, "gradient": 0.02, "aggregation": 0.004}
        entry: dict[str, Any] = {
            "step": step,
            "loss": 2.0 / step,
            "n_rejected": 0,
            "seconds": seconds,
        }
        if step % every == 0:
            bad = [(step // every + i) % n_rows for i in range(n_bad)]
            weights = [0.0 if i in bad else 1 / (n_rows - n_bad) for i in range(n_rows)]
            entry |= {
                "rejected": bad[:1],
                "bad": bad,
                "accuracy": accuracy * step / n,
                "test_loss": 1.0 / step,
            }
            entry |= {"weights": weights} if weighted else {}
        found.append(entry)
    return found


def write_run(
    folder: Path, settings: dict[str, Any], some: list[dict[str, Any]], end: str | None = "finished"
) -> Path:
    create_record(
        folder,
        settings,
        versions={"holdfast": "0.1.0"},
        machine={"processor": "a chip"},
        command=["holdfast", "train"],
    )
    with Journal(folder) as journal:
        for entry in some:
            journal.append(entry)
        if end:
            journal.append(
                {"end": end, "step": len(some)}
                | ({"reason": "it did"} if end == "diverged" else {})
            )
    return folder


def summary(
    accuracy: float = 0.8, *, end: str | None = "finished", n_steps: int = N_STEPS, **settings: Any
) -> Summary:
    own = config(**settings)
    return Summary.from_json(
        {
            "format": "holdfast summary",
            "version": 1,
            "hash": config_hash(own),
            "config": own,
            "started": "2026-01-01T00:00:00+00:00",
            "versions": {"holdfast": "0.1.0", "torch": "2.6"},
            "machine": {"processor": "a chip", "cores": 2, "threads": 1},
            "command": ["holdfast", "train", "--seed", str(own["seed"])],
            "end": None if end is None else {"end": end, "step": n_steps, "reason": "it did"},
            "n_steps": n_steps,
            "evaluations": [
                {"step": step, "accuracy": accuracy * step / N_STEPS, "test_loss": 1 / step}
                for step in range(10, n_steps + 1, 10)
            ],
            "series": {
                "step": list(range(1, n_steps + 1)),
                "loss": [2.0 / step for step in range(1, n_steps + 1)],
            },
            "seconds": {"data": 0.001, "gradient": 0.02, "aggregation": 0.004, "evaluation": 0.5},
            "rows": {
                "step": [10, 20, 30],
                "weights": [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.4, 0.6, 0.0]],
                "bad": [[1], [0], [2]],
                "rejected": [[], [0], []],
            },
        }
    )


def configured(accuracy: float = 0.8, **settings: Any) -> Summary:
    """A run of a real configuration with these settings."""
    own = config_to_json(Config(**settings))
    return replace(summary(accuracy), config=own, hash=config_hash(own))


def measurement(settings: dict[str, Any], result: dict[str, Any]) -> MeasurementRecord:
    return MeasurementRecord(hash=config_hash(settings), config=settings, result=result)


def collection(
    *things: Summary | MeasurementRecord | Study, problems: tuple[str, ...] = ()
) -> Collection:
    return Collection(
        runs={thing.hash: thing for thing in things if isinstance(thing, Summary)},
        measurements={
            thing.hash: thing for thing in things if isinstance(thing, MeasurementRecord)
        },
        studies=tuple(thing for thing in things if isinstance(thing, Study)),
        problems=problems,
    )


def study(
    *things: Summary | MeasurementRecord,
    name: str = "table-a",
    title: str = "Table A",
    about: str = "A setting.",
) -> Study:
    return Study(
        name=name,
        recipe="table-a",
        variant="paper",
        size="quick",
        title=title,
        about=about,
        command=("holdfast", "reproduce", name),
        runs={thing.hash: {} for thing in things if isinstance(thing, Summary)},
        measurements={thing.hash: {} for thing in things if isinstance(thing, MeasurementRecord)},
    )


def sections(found: Collection, *shown: View, note: str = "") -> list[Section]:
    """Every study with these views."""
    return [study_section(one, shown or views(), found, note) for one in found.studies]


def png(value: int = 128) -> str:
    """A grey image of 4 x 4 pixels in base64."""
    raw = b"".join(b"\0" + bytes([value] * 4) for _ in range(4))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(raw)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def runs() -> dict[tuple[str, float], tuple[Summary, ...]]:
    """Two seeds of each method, clean and attacked; SGD diverges under attack, in one of the seeds before any evaluation."""
    found = {}
    for i, method in enumerate(METHODS):
        for share in BAD_SHARES:
            is_lost = method == "SGD" and share > 0
            found[method, share] = tuple(
                summary(
                    0.9 - 0.1 * i - share / 4 + 0.01 * seed, method=method, share=share, seed=seed
                )
                if not is_lost
                else summary(
                    0.1,
                    method=method,
                    share=share,
                    seed=seed,
                    end="diverged",
                    n_steps=25 if seed else 5,
                )
                for seed in (0, 1)
            )
    return found


SCATTER = measurement(
    {"kind": "scatter"},
    {
        "good": [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        "bad": [[1.2, 1.2], [90.0, 90.0]],
        "estimates": {"SGD": [30.0, 30.0], "GmD": [0.6, 0.6]},
        "errors": {"SGD": 41.7, "GmD": 0.14},
    },
)
PICTURES = measurement(
    {"kind": "pictures"},
    {"columns": ["clean", "noise"], "rows": [{"label": "a coat", "pictures": [png(), png(255)]}]},
)
TIMES = tuple(
    measurement({"kind": "time", "d": d}, {"seconds": 3e-6 * d**1.5}) for d in (10, 100, 1000)
)


def views() -> tuple[View, ...]:
    """One of each kind."""
    hashes = {key: tuple(run.hash for run in some) for key, some in runs().items()}
    rows = tuple(
        TableRow(
            group="Gradient attack" if share else "",
            label=f"Sign flip, {share:.0%}" if share else "Clean",
            runs=tuple(hashes[method, share] for method in METHODS),
            paper=(
                PaperCell(mean=None) if share else PaperCell(mean=89.39, interval=0.28),
                PaperCell(mean=88.0),
                None,
            ),
        )
        for share in BAD_SHARES
    )
    panels = {
        f"{share:.0%} bad": {method: hashes[method, share] for method in METHODS}
        for share in BAD_SHARES
    }
    points = {method: {share: hashes[method, share] for share in BAD_SHARES} for method in METHODS}
    times = {
        record.config["d"]: MeasuredValue(measurement=record.hash, value="seconds")
        for record in TIMES
    }
    panel = MeasuredPanel(
        title="",
        x_label="d",
        y_label="seconds",
        x_scale="log",
        y_scale="log",
        lines={"GmD": times},
    )
    return (
        AccuracyTable(title="Test accuracy in percent", columns=METHODS, rows=rows),
        Curves(title="Over the steps", x="step", y="accuracy", panels=panels),
        Points(
            title="Over the share",
            x_label="share",
            y="accuracy",
            panels={"Sign flip": points},
        ),
        Measured(title="Time", panels=(panel,)),
        Scatter(title="In the plane", panels={"half": SCATTER.hash}),
        Pictures(title="Images", measurement=PICTURES.hash),
        RowWeights(title="Rows", panels={"GmD": hashes["GmD", 0.4][0]}),
        TimeSplit(
            title="Parts",
            lines={method: hashes[method, 0.0] for method in METHODS},
        ),
    )


def everything() -> Collection:
    """A study with all views, and two runs that belong to none, one of which is unfinished."""
    others = (
        summary(0.5, method="Krum", seed=7),
        summary(0.4, method="Krum", seed=8, end=None, n_steps=20),
    )
    flat = [run for some in runs().values() for run in some]
    measured = (SCATTER, PICTURES, *TIMES)
    whole = study(*flat, *measured)
    return collection(*flat, *others, *measured, whole, problems=("a/b is unfinished.",))


def write_everything(folder: Path) -> Path:
    """The same on disk, in several folders."""
    found = everything()
    lines = [json.dumps(run.to_json()) for run in found.runs.values()]
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "some.jsonl").write_text("\n".join(lines[::2]) + "\n")
    (folder / "more.jsonl").write_text("\n".join(lines[1::2]) + "\n")
    for record in found.measurements.values():
        write_measurement(folder / "measured", "some", record.config, record.result)
    write_study(folder / "studies", found.studies[0])
    return folder


def curve_of(run: Summary, label: str) -> Curves:
    """A figure of one run."""
    return Curves(title=label, x="step", y="accuracy", panels={label: {label: (run.hash,)}})
