"""Wheel and sdist, installed beside torch with each extra, work without anything else."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.errors import DISTRIBUTION
from tests.package.environment import ROOT, Environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_BYTES = 6_000_000
"""Of the wheel or the sdist, of which the embedded images take four million."""

CORE = """
import importlib.util, warnings
assert not importlib.util.find_spec("numpy")
warnings.filterwarnings("ignore", "Failed to initialize NumPy")
import torch, holdfast
import holdfast.aggregators, holdfast.adapters, holdfast.checks, holdfast.distributed
import holdfast.exchange, holdfast.geometry, holdfast.layout, holdfast.monitor, holdfast.optim
import holdfast.registry, holdfast.robust_step, holdfast.seeds, holdfast.selectors
import holdfast.sources, holdfast.testing, holdfast.threats
from holdfast.optim import RobustOptimizer
from holdfast.sources import MicroBatches
from torch import nn
model = nn.Linear(4, 2)
optimizer = RobustOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), "bgmd")
source = MicroBatches(model, nn.CrossEntropyLoss(), n_rows=4)
before = model.weight.detach().clone()
optimizer.backward(source(torch.randn(8, 4), torch.tensor([0, 1] * 4)))
optimizer.step()
assert not torch.equal(before, model.weight)
print(holdfast.__version__)
"""

TRAIN = ("train", "--model", "logistic-regression", "--rows", "4", "--batch", "2", "--steps", "3")

FEDERATED = """
from flwr.serverapp.strategy import FedAvg
from holdfast.federated import RobustStrategy
print(RobustStrategy(FedAvg(), "geometric-median"))
"""

TORCHFT = """
from holdfast.distributed import RobustManager
print(RobustManager)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    (name,) = [one for one in zipfile.ZipFile(wheel).namelist() if one.endswith("/METADATA")]
    return message_from_bytes(zipfile.ZipFile(wheel).read(name))


def test_name_and_version_have_one_source(metadata: Message, wheel: Path) -> None:
    assert metadata["Name"] == PROJECT["name"] == DISTRIBUTION
    assert metadata["Version"] == __version__
    assert wheel.name == f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_wheel_holds_the_package_its_data_and_their_licenses(names: list[str]) -> None:
    modules = {str(one.relative_to(ROOT / "src")) for one in (ROOT / "src").rglob("*.py")}
    assert modules <= set(names)
    others = {one for one in names if not one.endswith(".py") and ".dist-info/" not in one}
    data = "holdfast/lab/data/embedded/"
    page = "holdfast/lab/report/page/"
    assert {f"{data}LICENSE", "holdfast/py.typed", f"{page}page.html.j2"} <= others
    assert len([one for one in others if one.startswith(data) and one.endswith(".gz")]) == 4
    assert {one.rpartition("/")[0] + "/" for one in others} <= {data, page, "holdfast/"}
    licenses = {one.partition("/licenses/")[2] for one in names if "/licenses/" in one}
    assert licenses == {"LICENSE", "src/holdfast/lab/data/embedded/LICENSE"}


def test_neither_file_holds_tests_or_records_and_both_are_small(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    (wheel,) = built.glob("*.whl")
    with tarfile.open(sdist) as archive:
        inside = [one.name.partition("/")[2] for one in archive.getmembers()]
    roots = {one.partition("/")[0] for one in inside}
    assert roots <= {
        *("src", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO"),
        *("pyproject.toml", ".gitignore"),
    }
    assert {"src/holdfast/py.typed", "src/holdfast/lab/data/embedded/LICENSE"} <= set(inside)
    assert not [one for one in inside if "__pycache__" in one]
    for path in (sdist, wheel):
        assert path.stat().st_size < MOST_BYTES


def test_every_extra_is_declared(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra") or ()) == {
        *("lab", "tensorboard", "federated", "torchft", "docs", "dev")
    }


def made(wheel: Path, folder: Path, extra: str = "") -> Environment:
    environment = Environment(folder / "venv")
    environment.install(f"{wheel}[{extra}]" if extra else str(wheel))
    return environment


def test_the_core_needs_torch_only(wheel: Path, tmp_path: Path) -> None:
    environment = made(wheel, tmp_path)
    assert environment.python(CORE, tmp_path).strip() == __version__
    refused = environment.run("holdfast", "list", cwd=tmp_path)
    assert refused.returncode == 1
    assert re.fullmatch(
        r"The command line has further requirements: pip install 'holdfast-train\[lab\]' "
        r"\(No module named '\w+'\)\.\n",
        refused.stderr,
    )


@pytest.mark.parametrize("extra", ["lab", "tensorboard"])
def test_the_command_trains_and_reports(extra: str, wheel: Path, tmp_path: Path) -> None:
    environment = made(wheel, tmp_path, extra)
    trained = environment.run("holdfast", *TRAIN, "--folder", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    shown = environment.run("holdfast", "report", "run", "--output", "page", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "<html" in (tmp_path / "page" / "index.html").read_text()
    board = environment.run("holdfast", *TRAIN, "--folder", "b", "--tensorboard", cwd=tmp_path)
    if extra == "tensorboard":
        assert board.returncode == 0, board.stderr
        assert list(tmp_path.glob("b/tensorboard/events.*"))
    else:
        assert board.returncode == 2
        assert "pip install 'holdfast-train[tensorboard]'" in board.stderr


@pytest.mark.parametrize(("extra", "program"), [("federated", FEDERATED), ("torchft", TORCHFT)])
def test_the_other_extras(extra: str, program: str, wheel: Path, tmp_path: Path) -> None:
    environment = made(wheel, tmp_path, extra)
    assert environment.python(program, tmp_path).strip()
    environment.python("import holdfast.aggregators", tmp_path)
