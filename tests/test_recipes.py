"""The recipes run as printed with the real frameworks, and they train."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from holdfast.optim import RobustOptimizer

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"


def blocks() -> dict[str, str]:
    """The code of each section, by its title; all sections share the code of the first."""
    found = {}
    for section in re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE):
        code = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        if code:
            found[section.splitlines()[0]] = "\n".join(code)
    return found


def run(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    parts = blocks()
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(parts["Recipes: Lightning, Accelerate, Hugging Face"], names)
    exec(parts[title], names)
    return names


def loss(model: Any, names: dict[str, Any]) -> float:
    with torch.no_grad():
        return float(cross_entropy(model(names["data"].scaled()), names["data"].labels))


# Warnings of the frameworks' own code and its dependencies.
frameworks = pytest.mark.filterwarnings("ignore")


@frameworks
def test_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("Lightning", tmp_path, monkeypatch)
    optimizer = names["trainer"].optimizers[0]
    assert isinstance(optimizer, RobustOptimizer)
    assert optimizer.robust_step.n_steps == 20
    assert loss(names["classifier"].model, names) < 2.1
    names["trainer"].save_checkpoint(tmp_path / "checkpoint.ckpt")
    saved = torch.load(tmp_path / "checkpoint.ckpt", weights_only=False)
    assert saved["optimizer_states"][0]["holdfast"]["step"]["n_steps"] == 20


@frameworks
def test_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("Accelerate", tmp_path, monkeypatch)
    assert names["optimizer"].optimizer.robust_step.n_steps == 20
    assert loss(names["model"], names) < 2.1


@frameworks
def test_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("Hugging Face Trainer", tmp_path, monkeypatch)
    trainer = names["bert"]
    assert trainer.robust_step.n_steps == 4
    assert trainer.state.global_step == 4
    assert len(trainer.source.losses) == 8
    moments = [state["exp_avg"] for state in trainer.optimizer.optimizer.state.values()]
    assert sum(int((moment != 0).any()) for moment in moments) > 5, (
        "the trainer's optimizer saw the directions"
    )
