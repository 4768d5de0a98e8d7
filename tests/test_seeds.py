import torch

from holdfast.seeds import stream


def draw(seed: int, *path: str | int) -> list[float]:
    return torch.rand(4, generator=stream(seed, *path)).tolist()


def test_equal_paths_give_equal_streams() -> None:
    assert draw(1, "attack", 2) == draw(1, "attack", 2)


def test_different_paths_and_seeds_give_different_streams() -> None:
    drawn = [
        draw(seed, *path)
        for seed in (0, 1, -1)
        for path in ((), ("a",), ("a", 1), ("a", "1"), ("a1",), ("b",))
    ]
    assert len({tuple(numbers) for numbers in drawn}) == len(drawn)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draw(3, "x")
    assert torch.equal(torch.get_rng_state(), before)
