"""What this machine knows of its processes; on Linux only."""

from pathlib import Path

PROC = Path("/proc")


def place() -> str:
    """Where numbers of processes mean the same: this start of the machine, this container.

    Names of hosts do not say it: containers may share them.
    """
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def condition(pid: int) -> str:
    """What keeps a process of this place from working, as a clause; empty if nothing is known."""
    try:
        # The second field is a name in parentheses, which may contain anything.
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "has ended"
    except OSError:
        return ""
    return {"Z": "has ended", "X": "has ended", "T": "is stopped", "t": "is stopped"}.get(state, "")
