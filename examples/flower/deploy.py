"""A real federation on this machine: a SuperLink and SuperNodes, with TLS and node authentication.

    python deploy.py FOLDER --nodes 5 --malicious 1 --kill 1 --run-config 'n-rounds=3'

Every process is one that would run on a machine of its own. The last `--malicious` nodes lie. The
first `--kill` nodes are killed in the middle of the second round, as by a power failure. With
`--stranger`, a node whose key was not registered tries to get in. All processes are ended when the
run has finished, failed, or was interrupted. Needs Linux.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
        self.superlink: subprocess.Popen[bytes] | None = None
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
        reap()

    def start(self) -> None:
        """Make certificates, start the SuperLink, register the nodes, and start them."""
        keys = self._make_keys("keys", self.n_nodes)
        home = self.folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "deployment"\n\n[superlink.deployment]\n'
            f'address = "{self.address}"\nroot-certificates = "{keys / "ca.crt"}"\n'
        )
        host, port = self.address.split(":")
        self.superlink = self._start(
            "superlink",
            *("flower-superlink", "--host", host, "--port", port),
            *("--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt"),
            *("--ssl-keyfile", keys / "server.key", "--enable-supernode-auth"),
            # The app's needs are installed; nothing is to be downloaded in a run.
            "--disable-runtime-dependency-installation",
        )
        wait_for("the SuperLink", lambda: is_open(host, int(port)), seconds=120)
        with ThreadPoolExecutor() as pool:  # each command starts a Python of its own
            self.node_ids = list(pool.map(self._register, range(self.n_nodes)))
        names = [f"node-{i}" for i in range(self.n_nodes)]
        self.nodes = [self._start_node(name, keys / name, i) for i, name in enumerate(names)]
        wait_for("all nodes", lambda: self.n_online() == self.n_nodes, seconds=120)

    def _register(self, i: int) -> int:
        """Tell the SuperLink the public key of a node; returns the id that the node gets."""
        key = self.folder / "keys" / f"node-{i}.pub"
        return int(self.flwr("supernode", "register", key, "deployment")["node-id"])

    def start_stranger(self) -> "subprocess.Popen[bytes]":
        """Start a node that trusts the right authority, but whose key nobody has registered."""
        keys = self._make_keys("strange-keys", 1)
        return self._start_node("stranger", keys / "node-0", 0)

    def _make_keys(self, name: str, n_nodes: int) -> Path:
        """Certificates and keys in a folder of this name."""
        command = [sys.executable, str(HERE / "certificates.py"), str(self.folder / name)]
        hosts = ["--host", "localhost", "--host", HOST]
        subprocess.run([*command, "--nodes", str(n_nodes), *hosts], check=True)
        return self.folder / name

    def _start_node(self, name: str, key: Path, i: int) -> "subprocess.Popen[bytes]":
        config = f"partition-id={i} num-partitions={self.n_nodes}"
        if i >= self.n_nodes - self.n_malicious:
            config += f' attack="{self.attack}"'
        return self._start(
            name,
            *("flower-supernode", "--superlink", self.address),
            *("--root-certificates", self.folder / "keys" / "ca.crt"),
            *("--auth-supernode-private-key", key),
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
            timeout=120,
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

    def is_serving(self) -> bool:
        """Whether the server app runs."""
        assert self.superlink is not None
        return runs("flwr-serverapp", self.superlink)

    def is_training(self, i: int) -> bool:
        """Whether a node runs the client app at the moment."""
        return runs("flwr-clientapp", self.nodes[i])

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


def runs(command: str, process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process has a descendant with this command."""
    for pid in descendants(process.pid):
        try:
            if command.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:  # it has ended
            continue
    return False


def send_signal(pid: int, sign: signal.Signals) -> None:
    """Send a signal to a process, which may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)


def reap() -> None:
    """Take note of processes that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wait_for(
    what: str, is_there: Callable[[], bool], *, seconds: float, every: float = 0.2
) -> None:
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


def show(lines: list[dict[str, Any]]) -> int:
    """Print what the server has reported; returns the number of lines."""
    for line in lines:
        print(json.dumps(line), flush=True)
    return len(lines)


def arguments() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="must not exist yet")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--malicious", type=int, default=0)
    parser.add_argument("--attack", default="scaled-flip(factor=100.0)")
    parser.add_argument("--stranger", action="store_true", help="try a node with an unknown key")
    parser.add_argument("--kill", type=int, default=0, help="nodes to kill in round 2")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of the run")
    parser.add_argument("--run-config", default="", help="as of `flwr run`")
    return parser.parse_args()


def watch(deployment: Deployment, output: Path, *, n_to_kill: int, seconds: float) -> None:
    """Show the rounds of a run until it ends, and kill nodes in the second one."""
    wait_for("the server app", deployment.is_serving, seconds=120)
    deadline = time.monotonic() + seconds
    to_kill, n_shown = list(range(n_to_kill)), 0
    while deployment.is_serving():
        n_shown += show(rounds(output)[n_shown:])
        # Lines of rounds 0 (before training) and 1: the second round is under way.
        for i in [i for i in to_kill if n_shown >= 2 and deployment.is_training(i)]:
            deployment.kill(i)
            to_kill.remove(i)
            print(f"killed node {deployment.node_ids[i]}", flush=True)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run has not finished in {seconds:g} s")
        time.sleep(0.1)
    show(rounds(output)[n_shown:])


def main() -> None:
    """Start a federation, run the app in it, and end with its status."""
    given = arguments()
    given.folder.mkdir(parents=True)
    output = given.folder.resolve() / "rounds.jsonl"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are ended
    with Deployment(
        given.folder, n_nodes=given.nodes, n_malicious=given.malicious, attack=given.attack
    ) as deployment:
        deployment.start()
        print(f"nodes {deployment.node_ids} are online at {deployment.address}", flush=True)
        stranger = deployment.start_stranger() if given.stranger else None
        run = deployment.run(f'n-clients={given.nodes} output="{output}" {given.run_config}')
        watch(deployment, output, n_to_kill=given.kill, seconds=given.seconds)
        if stranger is not None:
            refused = stranger.wait(timeout=120) != 0
            print(f"the stranger was {'refused' if refused else 'let in'}", flush=True)
        wait_for(
            "the end of the run", lambda: deployment.status(run).startswith("finished"), seconds=120
        )
        status = deployment.status(run)
        print(f"run {run}: {status}", flush=True)
        if status != "finished:completed":
            sys.exit(1)


if __name__ == "__main__":
    main()
