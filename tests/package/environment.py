"""Environments with torch and nothing else, without installing torch again.

torch and what it requires are linked into a new environment from that of the tests, package by
package, with their metadata. So pip finds its requirement there, and no other package can be seen.
What this does not test is the installation of torch itself.
"""

import re
import subprocess
import sys
import venv
from collections.abc import Collection, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import final

ROOT = Path(__file__).parent.parent.parent


@final
class Environment:
    """A virtual environment with torch.

    Args:
        folder: where to make it.
        without: what torch requires and is to be installed in another release.
    """

    def __init__(self, folder: Path, without: Collection[str] = ()) -> None:
        venv.create(folder, symlinks=True)
        self._bin = folder / "bin"
        (site,) = folder.glob("lib/python*/site-packages")
        for name in required_by("torch") - set(without):
            for path in top_level(name):
                (site / path.name).symlink_to(path)

    def install(self, *wanted: str, constraints: Path | None = None) -> None:
        """Install with the pip of the tests; torch's own files are left as they are."""
        limits = [] if constraints is None else ["--constraint", str(constraints)]
        pip = [sys.executable, "-m", "pip", "--python", str(self._bin / "python"), "install"]
        done = subprocess.run(
            [*pip, "--quiet", "--disable-pip-version-check", *limits, *wanted],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, with no source folder in sight."""
        return subprocess.run(
            [str(self._bin / command[0]), *command[1:]],
            cwd=cwd,
            env={"PATH": str(self._bin), "HOME": str(self._bin.parent), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def python(self, program: str, cwd: Path) -> str:
        """Run a program, which must not fail, and return what it prints."""
        done = self.run("python", "-c", program, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout


def required_by(name: str) -> set[str]:
    """The distribution, and those that it requires on this machine, down to the last."""
    found: set[str] = set()
    left = [name]
    while left:
        one = left.pop()
        if one in found:
            continue
        found.add(one)
        for requirement in distribution(one).requires or ():
            # Requirements of extras and of other systems have conditions that fail here.
            if ";" not in requirement:
                left.append(re.split(r"[^\w.-]", requirement)[0].lower())
    return found


def top_level(name: str) -> Sequence[Path]:
    """The files and folders of a distribution in site-packages."""
    files = distribution(name).files or []
    site = Path(str(distribution(name).locate_file("")))
    names = {file.parts[0] for file in files} - {"..", "__pycache__"}
    return [site / one for one in sorted(names)]
