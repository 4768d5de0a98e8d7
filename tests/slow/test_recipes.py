"""The recipes for many ranks run as printed, with the real frameworks and one bad rank."""

from pathlib import Path

import pytest

from tests.slow.launch import found, run

SCRIPT = Path(__file__).parent / "recipe_on_many_ranks.py"


@pytest.mark.parametrize(
    ("framework", "n_steps"), [("Lightning", 8), ("Accelerate", 12), ("Hugging Face Trainer", 8)]
)
def test_the_bad_rank_is_left_out_and_named(framework: str, n_steps: int, tmp_path: Path) -> None:
    (one,) = found(run(SCRIPT, f"{framework} on many ranks", folder=tmp_path, n=3))
    assert one == {"steps": n_steps, "counts": [0, n_steps, 0], "suspects": [1]}
