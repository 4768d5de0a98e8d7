"""Ranks of torch.distributed on one machine: on loopback, or on hosts with a network of their own.

A host is a network namespace with one interface, which a cable (veth) connects to a switch (a
bridge). `tc … tbf` limits what passes the cable, in each direction, and the kernel counts the
bytes. Hosts share the processors and the memory of the machine, so that only the network is real.
Needs root and Debian's iproute2 (`ip`, `tc`); without them, `missing()` says what there is not.

Example:
    with hosts(4, rate="1gbit") as network:
        results = network.run("benchmarks.guard:ddp_steps", model="lenet")
"""

import ctypes
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, final

import torch.distributed as dist

PREFIX = "holdfast"
"""Namespaces are called `holdfast-<process>-<number>`, so that those of a dead process are
known."""

FILES = Path("/etc/netns")
"""Where `ip` looks for the files of a namespace."""

SECONDS = 180.0
"""A run that takes longer is ended."""

PR_SET_PDEATHSIG = 1


class Network(ABC):
    """Where ranks run.

    Args:
        n: number of ranks.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    @abstractmethod
    def prefix(self, rank: int) -> list[str]:
        """What comes before the command of a rank."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The address at which the ranks meet, and the interface that they use."""

    def run(self, function: str, *, seconds: float = SECONDS, **arguments: Any) -> list[Any]:
        """What `function` ("module:name") returns on each rank, in a process group of gloo.

        Arguments and results must be JSON. If a rank fails, all are ended, and its output is
        raised.
        """
        with tempfile.TemporaryDirectory() as folder:
            variables = os.environ | self.environment()
            call = json.dumps([function, arguments])
            processes = [self._start(rank, variables, call, Path(folder)) for rank in range(self.n)]
            try:
                _wait(processes, seconds, Path(folder))
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
            return [
                json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(self.n)
            ]

    def _start(
        self, rank: int, variables: dict[str, str], call: str, folder: Path
    ) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "benchmarks.hosts", call, str(folder / f"{rank}.json")]
        variables = variables | {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(self.n)}
        # Ranks share the cores: threads of one rank would only wait for those of another.
        variables |= {"OMP_NUM_THREADS": "1", "PARENT": str(os.getpid())}
        with (folder / f"{rank}.log").open("wb") as log:
            return subprocess.Popen(
                self.prefix(rank) + command, env=variables, stdout=log, stderr=log
            )


@final
class Loopback(Network):
    """Ranks that meet in the memory of this machine."""

    def prefix(self, rank: int) -> list[str]:
        return []

    def environment(self) -> dict[str, str]:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}


@final
class Hosts(Network):
    """Ranks on hosts of their own; made by :func:`hosts`."""

    def prefix(self, rank: int) -> list[str]:
        name = _name(rank)
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
        return ["ip", "netns", "exec", name, *named]

    def environment(self) -> dict[str, str]:
        # Every run has hosts to itself, whose ports are all free.
        return {
            "MASTER_ADDR": _address(0),
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": "eth0",
            "TP_SOCKET_IFNAME": "eth0",
        }


def missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if sys.platform != "linux":
        return "network namespaces are a matter of Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if absent:
        return f"{' and '.join(absent)} of iproute2 and util-linux not found"
    return None


@contextmanager
def hosts(n: int, rate: str | None = "1gbit") -> Iterator[Hosts]:
    """N hosts on one switch; they and the switch are gone afterwards.

    Args:
        n: number of hosts.
        rate: how much passes each cable in each direction, in the words of `tc`; None for no limit.
    """
    reason = missing()
    if reason is not None:
        raise RuntimeError(f"no hosts: {reason}.")
    _remove_left_behind()
    # `timeout` ends a process by SIGTERM, which would skip the `finally`.
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        _make(n, rate)
        yield Hosts(n)
    finally:
        _remove(os.getpid())
        signal.signal(signal.SIGTERM, before)


def bytes_passed() -> tuple[int, int]:
    """The bytes that this rank's interface has sent and received, with the headers of all
    packets.
    """
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == interface:
            values = figures.split()
            return int(values[8]), int(values[0])
    raise RuntimeError(f"no interface {interface}.")


def _make(n: int, rate: str | None) -> None:
    switch = _switch(os.getpid())
    _call("ip", "link", "add", switch, "type", "bridge")
    _call("ip", "link", "set", switch, "up")
    for rank in range(n):
        name, port = _name(rank), f"{switch}p{rank}"
        # Seen by the host in /etc. It cannot reach the machine's server of names; to ask for one of
        # its own, which is not there, fails at once instead of after many seconds.
        (FILES / name).mkdir(parents=True)
        (FILES / name / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        _call("ip", "netns", "add", name)
        _call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _call("ip", "link", "set", port, "master", switch, "up")
        _call("ip", "-n", name, "address", "add", f"{_address(rank)}/16", "dev", "eth0")
        _call("ip", "-n", name, "link", "set", "lo", "up")
        _call("ip", "-n", name, "link", "set", "eth0", "up")
        if rate is not None:
            # Offloaded segments are up to 64 KiB and must fit into the bucket.
            limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            _call("tc", "-n", name, "qdisc", "add", "dev", "eth0", *limit)
            _call("tc", "qdisc", "add", "dev", port, *limit)


def _remove(owner: int) -> None:
    """Remove the hosts of a process, with the cables, and their switch."""
    for name in _namespaces():
        if name.startswith(f"{PREFIX}-{owner}-"):
            # The kernel takes its time to delete a namespace, and the cables with it.
            port = f"{_switch(owner)}p{name.split('-')[2]}"
            _call("ip", "link", "delete", port, check=False)
            _call("ip", "netns", "delete", name, check=False)
            shutil.rmtree(FILES / name, ignore_errors=True)
    _call("ip", "link", "delete", _switch(owner), check=False)


def _remove_left_behind() -> None:
    """Remove what was left by processes that were killed."""
    owners = {int(name.split("-")[1]) for name in _namespaces() if name.startswith(f"{PREFIX}-")}
    for owner in owners:
        if not Path(f"/proc/{owner}").exists():
            _remove(owner)


def _namespaces() -> list[str]:
    lines = _call("ip", "netns", "list").splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def _name(rank: int) -> str:
    return f"{PREFIX}-{os.getpid()}-{rank}"


def _switch(owner: int) -> str:
    return f"hf{owner}"  # names of interfaces have at most 15 characters


def _address(rank: int) -> str:
    return f"10.77.{rank // 200}.{rank % 200 + 1}"


def _call(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _wait(processes: list["subprocess.Popen[bytes]"], seconds: float, folder: Path) -> None:
    deadline = time.monotonic() + seconds
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code not in (None, 0):
                raise RuntimeError(f"rank {rank} failed:\n{(folder / f'{rank}.log').read_text()}")
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the ranks took longer than {seconds:.0f} seconds.")
        time.sleep(0.05)


def main() -> None:
    """One rank: join the group, call the function, write what it returns."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["PARENT"]):
        return  # the parent has died before this line
    # Left to themselves, three ranks may share one core while one has the other.
    os.sched_setaffinity(0, {int(os.environ["RANK"]) % (os.cpu_count() or 1)})
    (function, arguments), result = json.loads(sys.argv[1]), Path(sys.argv[2])
    module, _, name = function.partition(":")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    found = getattr(importlib.import_module(module), name)(**arguments)
    result.write_text(json.dumps(found))
    with suppress(RuntimeError):  # a rank that is done first closes its connections
        dist.destroy_process_group()
    os._exit(0)  # threads of torch may abort an orderly end


if __name__ == "__main__":
    main()
