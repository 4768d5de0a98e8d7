"""Checks of arguments, and the one sentence form in which they fail.

Name, requirement, what came: "`fraction` must be in (0, 1], got 1.5."
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.errors import NonFiniteRowsError


def failure(name: str, requirement: str, got: object) -> ValueError:
    """The error for argument `name`, which must be `requirement` and came as `got`."""
    return ValueError(f"`{name}` must {requirement}, got {got}.")


def check_count(name: str, value: object, *, at_least: int = 0) -> None:
    """A whole number, `at_least` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise failure(name, f"be a whole number of at least {at_least}", value)


def check_share(name: str, value: object, *, below: float) -> None:
    """A number in [0, `below`)."""
    if not _is_number(value) or not 0 <= float(value) < below:  # type: ignore[arg-type]
        raise failure(name, f"be in [0, {below:g})", value)


def check_fraction(name: str, value: object) -> None:
    """A number in (0, 1]."""
    if not _is_number(value) or not 0 < float(value) <= 1:  # type: ignore[arg-type]
        raise failure(name, "be in (0, 1]", value)


def check_positive(name: str, value: object) -> None:
    """A finite number above zero."""
    if not _is_number(value) or not 0 < float(value) < math.inf:  # type: ignore[arg-type]
        raise failure(name, "be a finite number above 0", value)


def check_nonnegative(name: str, value: object) -> None:
    """A finite number, zero or more."""
    if not _is_number(value) or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise failure(name, "be a finite number of at least 0", value)


def check_flag(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise failure(name, "be True or False", repr(value))


def check_instance(name: str, value: object, kind: type) -> None:
    """An object of the class `kind`."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise failure(name, f"be {article} {kind.__name__}", type(value).__name__)


def check_one_of(first: str, first_value: object, second: str, second_value: object) -> None:
    """Exactly one of two arguments was given."""
    if (first_value is None) == (second_value is None):
        what = "neither" if first_value is None else "both"
        raise ValueError(f"Exactly one of `{first}` and `{second}` must be given, got {what}.")


def check_rows(tensors: object) -> list[Tensor]:
    """One tensor or a list of them, dense, real and floating, [n, ...] with equal n, dtype and device, n and d above zero."""
    if isinstance(tensors, Tensor):
        tensors = [tensors]
    if not isinstance(tensors, Sequence) or isinstance(tensors, str):
        raise failure(
            "rows", "be a tensor [n, d] or a list of tensors [n, ...]", type(tensors).__name__
        )
    if not tensors:
        raise failure("rows", "hold at least one tensor", "an empty list")
    first = tensors[0]
    for tensor in tensors:
        _check_row_tensor(tensor)
        for what, got, wanted in (
            ("number of rows", tensor.shape[0], first.shape[0]),
            ("dtype", tensor.dtype, first.dtype),
            ("device", tensor.device, first.device),
        ):
            if got != wanted:
                raise failure("rows", f"agree on the {what} (the first tensor has {wanted})", got)
    if first.shape[0] == 0:
        raise failure("rows", "have at least 1 row", tuple(first.shape))
    if sum(tensor[0].numel() for tensor in tensors) == 0:
        raise failure("rows", "have at least 1 column", tuple(first.shape))
    return list(tensors)


def _check_row_tensor(tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise failure(
            "rows", "be a tensor [n, d] or a list of tensors [n, ...]", type(tensor).__name__
        )
    if tensor.layout is not torch.strided:
        raise failure("rows", "be dense (call .to_dense() first)", tensor.layout)
    if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        raise failure(
            "rows", "be real floating point (float64, float32, bfloat16 or float16)", tensor.dtype
        )
    if tensor.ndim == 0:
        raise failure("rows", "have a first dimension that counts the rows", "a scalar")


def check_enough_rows(n: int, n_needed: int, rule: object) -> None:
    """At least as many rows as the rule needs."""
    if n < n_needed:
        raise ValueError(
            f"`rows` must have at least {n_needed} rows (needed by {rule!r}), got {n}."
        )


def check_finite_majority(finite: Tensor) -> None:
    """At least half of the rows, by the mask `finite` [n], hold neither NaN nor infinity."""
    n_bad = int((~finite).sum())
    if 2 * n_bad > len(finite):
        raise NonFiniteRowsError(
            f"`rows` must be finite in at least half of the rows, got {n_bad} of {len(finite)} with NaN or infinity."
        )


def check_finite_weight(share: float) -> None:
    """Rows that hold neither NaN nor infinity have at least half of the weight (to rounding)."""
    if share < 0.5 * (1 - 1e-12):
        raise NonFiniteRowsError(
            f"`rows` must be finite in rows of at least half of the weight, got {share:g} of it."
        )


def check_row_weights(row_weights: Tensor, n: int) -> Tensor:
    """[n] finite weights, none negative, not all zero; returned as float64 on the CPU with sum 1."""
    if (
        not isinstance(row_weights, Tensor)
        or row_weights.is_complex()
        or row_weights.layout is not torch.strided
    ):
        kind = row_weights.dtype if isinstance(row_weights, Tensor) else type(row_weights).__name__
        raise failure("row_weights", "be a dense tensor of real numbers", kind)
    weights = row_weights.detach().to(device="cpu", dtype=torch.float64)
    if weights.shape != (n,):
        raise failure("row_weights", f"have shape ({n},), one weight a row", tuple(weights.shape))
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise failure("row_weights", "be finite and not negative", weights.tolist())
    largest = weights.max()
    if not bool(largest > 0):
        raise failure("row_weights", "have a sum above 0", weights.tolist())
    weights = weights / largest  # so that the sum cannot overflow
    return weights / weights.sum()


def check_generator(generator: object) -> None:
    """A source of random numbers."""
    if not isinstance(generator, torch.Generator):
        raise failure("generator", "be a torch.Generator", type(generator).__name__)


def check_mask(mask: object, n: int, *, of: str = "row") -> None:
    """A bool tensor [n], True where a row (or whatever `of` says) is bad."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (n,):
        got = (
            f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        )
        raise failure("mask", f"be a bool tensor [{n}], one entry a {of}", got)


def check_vector(name: str, vector: object, d: int) -> None:
    """A dense floating tensor [d]."""
    if (
        not isinstance(vector, Tensor)
        or not vector.is_floating_point()
        or vector.layout is not torch.strided
    ):
        raise failure(
            name,
            "be a dense floating tensor",
            vector.dtype if isinstance(vector, Tensor) else type(vector).__name__,
        )
    if vector.shape != (d,):
        raise failure(name, f"have shape ({d},), one entry a column", tuple(vector.shape))


def check_lr(lr: object, d: int) -> float | Tensor:
    """A learning rate: a finite number of at least 0, or a tensor [d] of such; one that is zero throughout is returned as 0."""
    if isinstance(lr, Tensor) and lr.ndim == 0 and lr.is_floating_point():
        lr = float(lr)
    if not isinstance(lr, Tensor):
        check_nonnegative("lr", lr)
        return float(lr)  # type: ignore[arg-type]
    check_vector("lr", lr, d)
    if not bool(torch.isfinite(lr).all()) or bool((lr < 0).any()):
        raise failure("lr", "be finite and not negative", "a tensor with other entries")
    return lr.detach() if bool((lr > 0).any()) else 0.0


def _is_number(value: object) -> bool:
    """Whether the value is an int or a float that float64 can hold; NaN is no number."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and (abs(value) <= 1e308 or abs(value) == math.inf)
    )
