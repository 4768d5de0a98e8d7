"""The shell scripts that start a guarded run: on two nodes, and under a stand-in for SLURM."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.slow.launch import EXAMPLE, ROOT

ARGUMENTS = ["--steps", "60", "--checkpoint", "run.pt", "--every", "8", "--timeout", "20"]


def start(script: str, folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = ["timeout", "-k", "40", "100", "bash", str(ROOT / "examples" / script), str(EXAMPLE)]
    folders = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment |= {"PATH": os.pathsep.join(folders), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [*command, *ARGUMENTS, *arguments],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_two_nodes_restart_together(tmp_path: Path) -> None:
    """Only the node that has lost a rank counts the restart."""
    where = {"HEAD": f"127.0.0.1:{free_port()}", "NODES": "2", "RANKS": "2"}
    nodes = [start("guard_nodes.sh", tmp_path, "--fault", "killed", **where) for _ in range(2)]
    texts = [node.communicate()[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(texts)[-4000:]
    text = "\n".join(texts)
    assert re.search(r"RankFailedError: step 30: rank 1 \(.*\) has ended: ", text)
    assert len(re.findall("^accuracy: ", text, flags=re.MULTILINE)) == 1


def test_slurm(tmp_path: Path) -> None:
    """One node; `srun` and `scontrol` are stand-ins that do what the script needs of them."""
    for name, line in {"srun": 'shift; exec "$@"', "scontrol": "echo 127.0.0.1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "a", "SLURM_NNODES": "1", "SLURM_JOB_ID": "7"}
    job |= {"SLURM_GPUS_ON_NODE": "3", "PORT": str(free_port())}
    process = start("guard_slurm.sh", tmp_path, **job)
    text = process.communicate()[0]
    assert process.returncode == 0, text[-4000:]
    assert re.search(r"^accuracy: .* rejected: \[0, 0, 0\]", text, flags=re.MULTILINE)
