"""A real federation on this machine: a SuperLink and SuperNodes, with TLS and node authentication.

    python deploy.py FOLDER --nodes 5 --malicious 1 --kill 1 --run-config 'n-rounds=3'

Every process is one that would run on a machine of its own. The last `--malicious` nodes lie. The
first `--kill` nodes are killed in the middle of the second round, as by a power failure. All
processes are ended when the run has finished, failed, or was interrupted. Needs Linux.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from certificates import make_certificates

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
HOST = "127.0.0.1"
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl


class Deployment:
    """The processes of a federation, and their end.

    Args:
        folder: gets certificates, keys, logs and Flower's own files.
        n_nodes: number of SuperNodes.
        n_malicious: how many of them, the last ones, lie.
        attack: how they lie.
    """

    def __init__(self, folder: Path, *, n_nodes: int, n_malicious: int, attack: str) -> None:
        self.folder, self.n_nodes = folder.resolve(), n_nodes
        self.n_malicious, self.attack = n_malicious, attack
        self.address = f"{HOST}:{free_port()}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.node_ids: list[int] = []
        self.environment = os.environ | {
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            # Flower starts processes of its own by name.
            "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        }

    def __enter__(self) -> "Deployment":
        # Processes whose parent was killed become children of this one, and are found at the end.
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
        return self

    def __exit__(self, *_: object) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid in descendants(os.getpid()):
                send_signal(pid, sign)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and descendants(os.getpid()):
                reap()
                time.sleep(0.05)

    def start(self) -> None:
        """Make certificates, start the SuperLink, register the nodes, and start them."""
        keys = self.folder / "keys"
        make_certificates(keys, hosts=["localhost", HOST], n_nodes=self.n_nodes)
        home = self.folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "deployment"\n\n[superlink.deployment]\n'
            f'address = "{self.address}"\nroot-certificates = "{keys / "ca.crt"}"\n'
        )
        host, port = self.address.split(":")
        self._start(
            "superlink",
            *("flower-superlink", "--host", host, "--port", port),
            *("--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt"),
            *("--ssl-keyfile", keys / "server.key", "--enable-supernode-auth"),
            # The app's needs are installed; nothing is to be downloaded in a run.
            "--disable-runtime-dependency-installation",
        )
        wait_for("the SuperLink", lambda: is_open(host, int(port)), seconds=40)
        for i in range(self.n_nodes):
            found = self.flwr("supernode", "register", keys / f"node-{i}.pub", "deployment")
            self.node_ids.append(int(found["node-id"]))
        for i in range(self.n_nodes):
            self.nodes.append(self._start_node(i))
        wait_for("all nodes", lambda: self.n_online() == self.n_nodes, seconds=60)

    def _start_node(self, i: int) -> "subprocess.Popen[bytes]":
        keys = self.folder / "keys"
        config = f"partition-id={i} num-partitions={self.n_nodes}"
        if i >= self.n_nodes - self.n_malicious:
            config += f' attack="{self.attack}"'
        return self._start(
            f"node-{i}",
            *("flower-supernode", "--superlink", self.address),
            *("--root-certificates", keys / "ca.crt"),
            *("--auth-supernode-private-key", keys / f"node-{i}"),
            *("--node-config", config, "--host", HOST, "--port", str(free_port())),
        )

    def _start(self, name: str, command: str, *arguments: str | Path) -> "subprocess.Popen[bytes]":
        """Start a process that writes to a log, and ends if this one is killed."""
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(BIN / command), *map(str, arguments)],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,
            )

    def flwr(self, *arguments: str | Path) -> Any:
        """What a command of Flower's prints as JSON."""
        done = subprocess.run(
            [str(BIN / "flwr"), *map(str, arguments), "--format", "json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def n_online(self) -> int:
        """Number of nodes that are connected."""
        listed = self.flwr("supernode", "list", "deployment")
        return sum(node["status"] == "online" for node in listed["nodes"])

    def run(self, config: str) -> int:
        """Submit the app; returns the id of the run."""
        return int(self.flwr("run", HERE, "deployment", "--run-config", config)["run-id"])

    def status(self, run: int) -> str:
        """How the run stands, such as `"finished:completed"`."""
        return str(self.flwr("list", "deployment", "--run-id", str(run))["runs"][0]["status"])

    def is_training(self, i: int) -> bool:
        """Whether a node runs the client app at the moment."""
        return any(b"flwr-clientapp" in command_of(pid) for pid in descendants(self.nodes[i].pid))

    def kill(self, i: int) -> None:
        """End a node and all that it started, without any notice."""
        for pid in [self.nodes[i].pid, *descendants(self.nodes[i].pid)]:
            send_signal(pid, signal.SIGKILL)
        self.nodes[i].wait()


def end_with_parent() -> None:
    """Have the kernel end this process when its parent is gone."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def is_open(host: str, port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((host, port)) == 0


def parents() -> dict[int, int]:
    """The parent of every process of this machine that lives."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended
            continue
        if state != "Z":
            found[int(path.parent.name)] = int(parent)
    return found


def descendants(pid: int) -> list[int]:
    """All that a process has started, and what these have started."""
    parent_of, found = parents(), [pid]
    for one in found:
        found += [child for child, parent in parent_of.items() if parent == one]
    return found[1:]


def command_of(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def send_signal(pid: int, sign: signal.Signals) -> None:
    """Send a signal to a process, which may have ended."""
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        pass


def reap() -> None:
    """Take note of processes that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def wait_for(what: str, is_there: Callable[[], bool], *, seconds: float, every: float = 0.2) -> None:
    """Wait until something is there."""
    deadline = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(every)


def rounds(output: Path) -> list[dict[str, Any]]:
    """What the server has reported so far, a line per round."""
    if not output.exists():
        return []
    return [json.loads(line) for line in output.read_text().splitlines() if line.endswith("}")]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="must not exist yet")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--malicious", type=int, default=0)
    parser.add_argument("--attack", default="scaled-flip(factor=100.0)")
    parser.add_argument("--kill", type=int, default=0, help="nodes to kill in round 2")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of the run")
    parser.add_argument("--run-config", default="", help="as of `flwr run`")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    output = arguments.folder.resolve() / "rounds.jsonl"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are ended
    with Deployment(
        arguments.folder,
        n_nodes=arguments.nodes,
        n_malicious=arguments.malicious,
        attack=arguments.attack,
    ) as deployment:
        deployment.start()
        print(f"{arguments.nodes} nodes are online at {deployment.address}", flush=True)
        config = f'n-clients={arguments.nodes} output="{output}" {arguments.run_config}'
        run = deployment.run(config)
        deadline = time.monotonic() + arguments.seconds
        to_kill, n_shown, status = list(range(arguments.kill)), 0, ""
        while not status.startswith("finished"):
            for line in rounds(output)[n_shown:]:
                print(json.dumps(line), flush=True)
                n_shown += 1
            # Lines of rounds 0 (before training) and 1: the second round is under way.
            for i in [i for i in to_kill if n_shown >= 2 and deployment.is_training(i)]:
                deployment.kill(i)
                to_kill.remove(i)
                print(f"killed node {deployment.node_ids[i]}", flush=True)
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run has not finished: {status}")
            time.sleep(0.2)
            if not to_kill or n_shown < 2:
                status = deployment.status(run)
        for line in rounds(output)[n_shown:]:
            print(json.dumps(line), flush=True)
        print(f"run {run}: {status}", flush=True)
        if status != "finished:completed":
            sys.exit(1)


if __name__ == "__main__":
    main()
