"""BGMD on formed rows, in float64, one line per line of the definition."""

from torch import Tensor


def remainder(total: Tensor, columns: Tensor) -> Tensor:
    """The vector [..., d] with the columns of the block set to zero."""
    left = total.clone()
    left[..., columns] = 0.0
    return left


def augmented(rows: Tensor, memory: Tensor | None, lr: float) -> Tensor:
    """The rows with the memory, in units of parameters, added to each."""
    return rows.double() if memory is None else rows.double() + memory.double() / lr


def next_memory(
    kind: str, rows: Tensor, memory: Tensor | None, lr: float, columns: Tensor, weights: Tensor
) -> Tensor:
    """What each memory keeps, by its definition."""
    a = augmented(rows, memory, lr)
    kept = {"robust": lambda: weights @ a, "mean": lambda: a.mean(0), "row": lambda: a}[kind]()
    return lr * remainder(kept, columns)
