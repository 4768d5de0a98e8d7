"""Both steps on formed rows, in float64, one line per line of the definition."""

from torch import Tensor


def remainder(total: Tensor, columns: Tensor) -> Tensor:
    """The vector [..., d] with the columns of the block set to zero."""
    left = total.clone()
    left[..., columns] = 0.0
    return left


def augmented(rows: Tensor, carried: Tensor | None, lr: float) -> Tensor:
    """The rows, or their aggregate, with what is carried in units of parameters added to each."""
    return rows.double() if carried is None else rows.double() + carried.double() / lr


def next_memory(
    kind: str, rows: Tensor, carried: Tensor | None, lr: float, columns: Tensor
) -> Tensor:
    """What a memory of the paper's order retains, by its definition."""
    a = augmented(rows, carried, lr)
    return lr * remainder({"mean": a.mean(0), "row": a}[kind], columns)
