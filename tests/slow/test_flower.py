"""The Flower app on Flower's own engines: a simulation with Ray, and a deployment of processes."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
FLOWER = ROOT / "examples" / "flower"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Flower's files in an empty folder, Ray's in a short path, and no telemetry."""
    # Ray's sockets have paths of at most 107 characters.
    short = tempfile.mkdtemp(prefix="r", dir="/tmp")
    yield os.environ | {
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_TMPDIR": short,
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(FLOWER)]),
    }
    shutil.rmtree(short, ignore_errors=True)


def output_of(*command: str | Path, environment: dict[str, str], seconds: int, folder: Path) -> str:
    """What a command prints that must succeed; `timeout` ends it even if the tests were killed."""
    path = folder / "output.txt"
    with path.open("wb") as output:
        code = subprocess.call(
            ["timeout", "-k", "20", str(seconds), *map(str, command)],
            cwd=FLOWER,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    text = path.read_text()
    assert code == 0, text[-4000:]
    return text


def seconds_to_start(environment: dict[str, str]) -> float:
    """How long a process needs to import the client app, which Flower does for every message."""
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "import robust_app.client_app"], env=environment, check=True
    )
    return time.monotonic() - started


def test_simulation(environment: dict[str, str], tmp_path: Path) -> None:
    """With Ray, a run is that of one process, and bad clients are named in all rounds."""
    settings = {"data": "fashion-mnist-slice", "model": "mlp", "n-rounds": 3}
    settings |= {"bad-fraction": 0.2, "attack": "scaled-flip", "output": str(tmp_path / "lines")}
    text = output_of(
        *(sys.executable, "-m", "robust_app.simulation"),
        *(f"{key}={value!r}" for key, value in settings.items()),
        environment=environment,
        seconds=240,
        folder=tmp_path,
    )
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [len(line["rejected"]) for line in lines[1:]] == [2, 2, 2]
    assert len({node for line in lines[1:] for node in line["rejected"]}) == 2

    from examples.flower.robust_app.client_app import app
    from examples.flower.robust_app.server_app import run
    from examples.flower.robust_app.settings import Settings

    from holdfast.federated import LocalGrid

    grid = LocalGrid(app, {100 + i: {"partition-id": i} for i in range(10)})
    expected = run(grid, Settings.read(settings))
    shown = dict(re.findall(r"^round (\d+): accuracy ([\d.]+)%$", text, flags=re.MULTILINE))
    found = {int(server_round): float(accuracy) / 100 for server_round, accuracy in shown.items()}
    assert found == pytest.approx(expected, abs=0.01)


def test_deployment(environment: dict[str, str], tmp_path: Path) -> None:
    """A node that lies is left out of all rounds, one that is killed within a round is not missed,

    and one whose key was not registered does not get in.
    """
    # A reply takes a process 5 seconds of a core: four nodes need 11 seconds on two idle cores, and
    # more on busy ones. The killed node costs the timeout twice.
    timeout = min(max(13 * seconds_to_start(environment), 30.0), 120.0)
    config = f'data="fashion-mnist-slice" model="mlp" n-rounds=3 timeout={timeout:.1f}'
    text = output_of(
        *(sys.executable, "deploy.py", tmp_path / "run", "--nodes", "4", "--malicious", "1"),
        *("--stranger", "--kill", "1", "--run-config", config, "--seconds", str(int(6 * timeout))),
        environment=environment,
        seconds=int(200 + 6 * timeout),
        folder=tmp_path,
    )
    killed_id, _, _, malicious_id = found_nodes(text)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in text.splitlines() if line.startswith("{")
    ]
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    assert re.search(rf"^killed node {killed_id}$", text, flags=re.MULTILINE)
    assert text.index('"round": 1') < text.index("killed node") < text.index('"round": 2')
    assert "the stranger was refused" in text
    for line in lines[1:]:
        assert line["rejected"] == [malicious_id]
        assert line["reason"] == ""
    assert (lines[1]["n_asked"], len(lines[1]["n_bytes"])) == (4, 4)  # without the stranger
    for line in lines[2:]:
        assert len(line["n_bytes"]) == 3
        # After 60 seconds the SuperLink no longer counts the killed node, and it is not asked.
        assert str(killed_id) in line["dropped"] or line["n_asked"] == 3
    assert str(killed_id) in lines[2]["dropped"]
    assert lines[3]["accuracy"] > 0.6
    assert text.rstrip().endswith("finished:completed")
    assert left_over(tmp_path) == []


def found_nodes(text: str) -> list[int]:
    """The ids of the nodes in their order: first those to be killed, last those that lie."""
    match = re.search(r"^nodes \[([\d, ]+)\] are online", text, flags=re.MULTILINE)
    assert match is not None, text
    return [int(number) for number in match[1].split(", ")]


def left_over(folder: Path) -> list[str]:
    """The commands of processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is not ours
            continue
    return found
