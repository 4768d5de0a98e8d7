"""The recipes for many ranks run as printed, with the real frameworks and one bad rank."""

from pathlib import Path

import pytest

from tests.slow.launch import found, run

SCRIPT = Path(__file__).parent / "recipe_on_many_ranks.py"


@pytest.mark.parametrize("framework", ["Lightning", "Accelerate", "Hugging Face Trainer"])
def test_the_bad_rank_is_left_out_and_named(framework: str, tmp_path: Path) -> None:
    (one,) = found(run(SCRIPT, f"{framework} on many ranks", folder=tmp_path, n=3))
    assert one == {"steps": 12, "counts": [0, 12, 0], "suspects": [1]}
