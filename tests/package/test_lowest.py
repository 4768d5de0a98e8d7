"""The oldest releases that pyproject.toml allows of everything but torch work.

torch's own bound is not tested: an older torch has to be installed for that, with gigabytes.
"""

import re
import tomllib
from pathlib import Path

import pytest

from tests.package.environment import ROOT, Environment

TESTS = {
    ("lab", "tensorboard"): (
        "tests/lab/cli/test_options.py",
        "tests/lab/cli/test_wrong_use.py",
        "tests/lab/data/test_npm.py",
    ),
    # Flower asks for newer releases of what the lab requires, so they have environments of their own.
    ("federated",): ("tests/federated/test_weights.py", "tests/federated/test_bad_replies.py"),
}
"""By the extras that are installed together."""

TOOLS = ("pytest", "hypothesis", "scipy", "mpmath")
"""What the tests import besides; in releases that fit."""


def lowest(extras: tuple[str, ...]) -> dict[str, str]:
    """The lower bound of each requirement of these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, str] = {}
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            name, _, bounds = requirement.partition(">=")
            if bounds:
                found[name] = re.split(",", bounds)[0]
    return found


@pytest.mark.parametrize("extras", TESTS, ids="-".join)
def test_the_lowest_releases_work(extras: tuple[str, ...], tmp_path: Path) -> None:
    bounds = lowest(extras)
    assert len(bounds) >= 2
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("".join(f"{name}=={bound}\n" for name, bound in bounds.items()))
    environment = Environment(tmp_path / "venv", without=bounds)
    environment.install(f"{ROOT}[{','.join(extras)}]", *TOOLS, constraints=constraints)
    done = environment.run(
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *TESTS[extras]),
        *("-o", "addopts=--strict-markers"),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
