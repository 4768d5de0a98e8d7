"""Real runs under torchrun."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "ddp_guard.py"


def start(
    script: Path, *arguments: str, folder: Path, n: int = 4, options: tuple[str, ...] = ()
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a script on n ranks; returns the process and the file that gets all output."""
    # `timeout` ends torchrun, which ends the ranks, even if the tests themselves were killed.
    command = ["timeout", "-k", "40", "150", sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", f"--nproc-per-node={n}", *options, str(script), *arguments]
    paths = [str(ROOT / "src"), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    path = folder / "output.txt"
    with path.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    return process, path


def run(
    script: Path, *arguments: str, folder: Path, n: int = 4, options: tuple[str, ...] = ()
) -> str:
    """The output of a run that must succeed."""
    process, path = start(script, *arguments, folder=folder, n=n, options=options)
    code = process.wait()
    text = path.read_text()
    assert code == 0, text[-4000:]
    return text


def found(text: str) -> list[dict[str, Any]]:
    """What a script of this folder has found, a line each."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("found ")]
