"""Files that may be damaged or made by an enemy."""

import copy
import gzip
import io
import json
import pickle
import random
import shutil
import struct
import tarfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from holdfast.lab.config import Config, config_to_json, hash_of
from holdfast.lab.data import read_idx, write_idx
from holdfast.lab.data._cifar import read_batches
from holdfast.lab.data._npm import _labels, _pixels
from holdfast.lab.data._store import SourceError
from holdfast.lab.models import models
from holdfast.lab.records import (
    MeasurementRecord,
    Study,
    Summary,
    config_hash,
    create_record,
    load_checkpoint,
    read_measurement,
    read_record,
    read_study,
    save_checkpoint,
)
from holdfast.lab.training import run, trained_model
from tests.fuzz.mutation import json_bytes, mutated_bytes, mutated_json

CONFIG = Config(model="tiny-cnn", n_rows=2, row_size=2, n_steps=3)
EXECUTED: list[str] = []
"""What code in a checkpoint has done."""


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return EXECUTED.append, ("executed",)


@cache
def _run_json() -> dict[str, Any]:
    config = config_to_json(CONFIG)
    return {
        "format": "holdfast run",
        "version": 1,
        "hash": config_hash(config),
        "config": config,
        "started": "2026-01-01T00:00:00+00:00",
        "versions": {"holdfast": "0", "torch": "2", "python": "3"},
        "machine": {"device": "cpu", "threads": 1},
        "command": ["holdfast", "train"],
    }


ENTRIES: list[dict[str, Any]] = [
    {
        "step": step,
        "loss": 2.3,
        "residual": 0.1,
        "weights": [0.5, 0.5],
        "bad": [1],
        "rejected": [],
        "n_rejected": 0,
        "bad_weight": 0.5,
        **({"accuracy": 0.5, "test_loss": 1.0} if step == 3 else {}),
        "seconds": {"gradient": 0.01, "aggregation": 0.02},
    }
    for step in (1, 2, 3)
]
END = {"end": "finished", "step": 3}


def records(chance: random.Random, folder: Path) -> None:
    """A run's folder: `run.json` and `metrics.jsonl`."""
    run, lines = _run_json(), [*ENTRIES, END][: chance.choice((0, 2, 3, 4, 4, 4))]
    if chance.random() < 0.5:
        run = mutated_json(run, chance)
        if isinstance(run, dict) and isinstance(run.get("config"), dict) and chance.random() < 0.5:
            run["hash"] = config_hash(run["config"])
        (folder / "run.json").write_bytes(json_bytes(run, chance))
    else:
        (folder / "run.json").write_text(json.dumps(run))
    if chance.random() < 0.7:
        lines = [mutated_json(line, chance) if chance.random() < 0.3 else line for line in lines]
    content = b"".join(json_bytes(line, chance) + b"\n" for line in lines)
    (folder / "metrics.jsonl").write_bytes(content)
    Summary.of(read_record(folder))


@cache
def _documents() -> dict[str, Any]:
    config = {"a": 1}
    measurement = MeasurementRecord(
        hash=config_hash(config), config=config, result={"x": [1.0, None]}
    ).to_json()
    study = Study(
        name="a", recipe="table2", title="A", about="B", runs={"0": {"rule": "mean", "x": 1.0}}
    ).to_json()
    return {"measurement": measurement, "study": study, "summary": _summary()}


def _summary() -> dict[str, Any]:
    run = _run_json()
    return {
        "format": "holdfast summary",
        "version": 1,
        "hash": run["hash"],
        "config": run["config"],
        "end": END,
        "n_steps": 3,
        "evaluations": [{"step": 3, "accuracy": 0.5}],
        "series": {"step": [1, 2, 3], "loss": [1.0, None, 2.0]},
        "seconds": {"gradient": 0.1},
        "rows": {"step": [1], "weights": [[0.5, 0.5]], "bad": [[1]], "rejected": [[]]},
    }


def documents(chance: random.Random, folder: Path) -> None:
    """Studies, measurements and summaries."""
    kind = chance.choice(("study", "measurement", "summary"))
    data = mutated_json(_documents()[kind], chance)
    if kind == "summary":
        Summary.from_json(data)
        return
    path = folder / f"a.{kind}.json"
    path.write_bytes(json_bytes(data, chance))
    (read_study if kind == "study" else read_measurement)(path)


@cache
def _tree() -> dict[str, Any]:
    model = models[CONFIG.model](generator=torch.Generator())
    return {
        "hash": hash_of(CONFIG),
        "step": 3,
        "n_bytes": 0,
        "shape": (1, 28, 28),
        "experiment": {"model": model.state_dict()},
    }


@cache
def _checkpoint(folder: Path) -> bytes:
    save_checkpoint(folder / "seed.pt", _tree())
    return (folder / "seed.pt").read_bytes()


def checkpoints(chance: random.Random, folder: Path) -> None:
    """Files in the place of a checkpoint, of which none may run code."""
    path, kind = folder / "checkpoint.pt", chance.randrange(4)
    if kind == 0:
        node = chance.choice((Payload(), {"tree": Payload()}, [Payload()]))
        content = pickle.dumps(node, protocol=chance.choice((0, 2, 4)))
        content = content if chance.random() < 0.5 else mutated_bytes(content, chance)
    elif kind == 1:
        buffer = io.BytesIO()
        torch.save({"format": "holdfast checkpoint 1", "tree": {"x": Payload()}}, buffer)
        content = buffer.getvalue()
    else:
        content = mutated_bytes(_checkpoint(folder), chance)
    path.write_bytes(content)
    try:
        load_checkpoint(path)
    finally:
        assert not EXECUTED, "a checkpoint has run code"


def models_of_checkpoints(chance: random.Random, folder: Path) -> None:
    """Whole checkpoints with another content, from which a model is asked."""
    if not (folder / "run.json").exists():
        create_record(folder, config_to_json(CONFIG))
    save_checkpoint(folder / "checkpoint.pt", _mutated_tree(_tree(), chance))
    trained_model(folder)


def resumed_checkpoints(chance: random.Random, folder: Path) -> None:
    """Whole checkpoints with another content, from which a run is resumed for two steps."""
    for path in folder.glob("run/*"):
        path.unlink()
    stopped = _stopped(folder)
    shutil.copytree(stopped, folder / "run", dirs_exist_ok=True)
    tree = _mutated_tree(load_checkpoint(stopped / "checkpoint.pt"), chance)
    save_checkpoint(folder / "run" / "checkpoint.pt", tree)
    run(CONFIG, folder / "run")


@cache
def _stopped(folder: Path) -> Path:
    """The folder of a run that was stopped after its first step."""
    run(CONFIG, folder / "stopped", stop=lambda: True)
    return folder / "stopped"


def _mutated_tree(tree: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy of the tree with one or two of its values replaced or removed, at any depth."""
    tree = copy.deepcopy(tree)
    values: list[Any] = [
        None,
        1,
        -1,
        "x",
        [],
        {},
        (1, 10**6, 10**6),
        (0, 0, 0),
        (1, -1, 28),
        (3, 3, 3),
        (),
    ]
    tensors = [torch.zeros(()), torch.zeros(3), torch.zeros(0, 2), torch.zeros(3).bool()]
    for _ in range(chance.choice((1, 1, 2))):
        place: Any = tree
        while True:
            key = chance.choice(list(place))
            inner = place[key]
            if not isinstance(inner, dict) or not inner or chance.random() < 0.1:
                break
            place = inner
        place[key] = chance.choice([*values, *tensors])
        if chance.random() < 0.3:
            del place[key]
    return tree


@cache
def _idx(folder: Path) -> bytes:
    write_idx(folder / "seed.gz", torch.arange(60, dtype=torch.uint8).reshape(3, 4, 5))
    return gzip.decompress((folder / "seed.gz").read_bytes())


def idx_files(chance: random.Random, folder: Path) -> None:
    """IDX files, gzipped or not, with headers that promise anything."""
    content = _idx(folder)
    if chance.random() < 0.4:
        n = chance.choice((1, 2, 3, 4, 4, 5, 255))
        sizes = [chance.choice((0, 1, 3, 60, 2**16, 2**31, 2**32 - 1)) for _ in range(n)]
        content = b"\0\0\x08" + struct.pack(f">B{n}I", n, *sizes) + content[16:]
    if chance.random() < 0.6:
        content = mutated_bytes(content, chance)
    if chance.random() < 0.4:
        content = gzip.compress(content, compresslevel=1)
        content = mutated_bytes(content, chance) if chance.random() < 0.5 else content
    path = folder / "images"
    path.write_bytes(content)
    found = read_idx(path)
    assert found.numel() <= len(content) * 2000


def cifar_batches(chance: random.Random, folder: Path) -> None:
    """Binary batches of CIFAR-10."""
    content = bytes([chance.randrange(12)]) * 3073 * chance.choice((0, 1, 2))
    if chance.random() < 0.7:
        content = mutated_bytes(content, chance)
    content = gzip.compress(content, compresslevel=1) if chance.random() < 0.3 else content
    content = mutated_bytes(content, chance) if chance.random() < 0.3 else content
    path = folder / "batch.bin"
    path.write_bytes(content)
    read_batches([path])


@cache
def _png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (1024, 2), (1, 2, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def _wrong_png(chance: random.Random) -> bytes:
    """A PNG with right checksums and a wrong content, or a damaged one."""
    if chance.random() < 0.5:
        return mutated_bytes(_png(), chance)
    width, height = (chance.choice((0, 1, 2, 1024, 2**15, 2**31 - 1)) for _ in range(2))
    width, height = chance.choice(((width, height), (1024, 2), (1024, 2)))
    depth, color = chance.choice((8, 8, 16, 1, 3)), chance.choice((2, 2, 0, 3, 6, 5))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, chance.choice((0, 1)))
    body = mutated_bytes(zlib.compress(bytes(2 * 3073)), chance)
    text = chance.choice((b"", b"a\0\0" + zlib.compress(bytes(10**5)), b"\0", b"x" * 50))
    kinds = (
        b"zTXt",
        b"iTXt",
        b"tEXt",
        b"PLTE",
        b"tRNS",
        b"gAMA",
        b"cHRM",
        b"pHYs",
        b"acTL",
        b"eXIf",
    )
    parts = [_chunk(chance.choice(kinds), text), _chunk(b"IDAT", body), _chunk(b"IEND", b"")]
    if chance.random() < 0.2:
        chance.shuffle(parts)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + b"".join(parts)


def png_packages(chance: random.Random, folder: Path) -> None:
    """Archives with a PNG and a list of labels, as one distributor packs CIFAR-10."""
    labels = json_bytes(mutated_json([1, 2], chance), chance)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("a.png", _wrong_png(chance)), ("labels.json", labels)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as archive:
        try:
            if chance.random() < 0.8:
                _pixels(archive, "a.png", 2)
            else:
                _labels(archive, "labels.json")
        except SourceError:  # `fetch` tries the next source, and reports the reasons of all
            pass
