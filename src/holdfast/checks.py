"""Checks of arguments.

All errors have one form, name, requirement, value: "`fraction` must be in (0, 1], got 1.5."
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast._typing import Rate
from holdfast.errors import NonFiniteRowsError

MOST_CHARACTERS = 1000
"""Of a value in a message; a file may hold anything."""

_KIND_OF_ROWS = "be a tensor [n, d] or a list of tensors [n, ...]"


def failure(name: str, requirement: str, got: object) -> ValueError:
    """The error for the argument `name`, which must meet `requirement` and is `got`."""
    return ValueError(f"`{name}` must {requirement}, got {_short(got)}.")


def check_count(name: str, value: object, *, at_least: int = 0) -> None:
    """Check for a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise failure(name, f"be a whole number of at least {at_least}", value)


def check_share(name: str, value: object, *, below: float) -> None:
    """Check for a number in [0, `below`)."""
    if not _is_number(value) or not 0 <= float(value) < below:  # type: ignore[arg-type]
        raise failure(name, f"be in [0, {below:g})", value)


def check_fraction(name: str, value: object) -> None:
    """Check for a number in (0, 1]."""
    if not _is_number(value) or not 0 < float(value) <= 1:  # type: ignore[arg-type]
        raise failure(name, "be in (0, 1]", value)


def check_positive(name: str, value: object) -> None:
    """Check for a finite number above zero."""
    if not _is_number(value) or not 0 < float(value) < math.inf:  # type: ignore[arg-type]
        raise failure(name, "be a finite number above 0", value)


def check_nonnegative(name: str, value: object) -> None:
    """Check for a finite number of at least zero."""
    if not _is_number(value) or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise failure(name, "be a finite number of at least 0", value)


def check_flag(name: str, value: object) -> None:
    """Check for True or False."""
    if not isinstance(value, bool):
        raise failure(name, "be True or False", repr(value))


def check_instance(name: str, value: object, kind: type) -> None:
    """Check for an object of the class `kind`."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise failure(name, f"be {article} {kind.__name__}", kind_of(value))


def kind_of(value: object) -> str:
    """What a value is, for a message: its type, or "the class ..." for a class itself."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def dtype_of(value: object) -> object:
    """The dtype of a tensor, for a message; the type of another value."""
    return value.dtype if isinstance(value, Tensor) else type(value).__name__


def shape_of(value: object) -> object:
    """The shape of a tensor, for a message; the type of another value."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def dtype_and_shape_of(value: object) -> str:
    """Both of a tensor, for a message; the type of another value."""
    shape = f" {list(value.shape)}" if isinstance(value, Tensor) else ""
    return f"{dtype_of(value)}{shape}"


def check_one_of(values: Mapping[str, object], *, may_omit: bool = False) -> None:
    """Check that exactly one of the named values is given, or at most one with `may_omit`."""
    given = [name for name, value in values.items() if value is not None]
    if len(given) == 1 or (may_omit and not given):
        return
    *others, last = (f"`{name}`" for name in values)
    listed = f"{', '.join(others)} and {last}"
    got = ("both" if len(values) == 2 else " and ".join(given)) if given else "neither"
    if may_omit:
        raise ValueError(f"At most one of {listed} may be given, got {got}.")
    raise ValueError(f"Exactly one of {listed} must be given, got {got}.")


def check_rows(tensors: object) -> list[Tensor]:
    """Check for a row tensor or a list of them, and return the list.

    A row tensor is dense, real and floating, [n, ...]. All have the same n, dtype and device; n and
    the number of columns are above zero.
    """
    if isinstance(tensors, Tensor) or is_array(tensors):
        return _checked_rows([as_tensor(tensors)])
    if not isinstance(tensors, Sequence) or isinstance(tensors, str):
        raise failure("rows", _KIND_OF_ROWS, type(tensors).__name__)
    if not tensors:
        raise failure("rows", "hold at least one tensor", "an empty list")
    if all(getattr(tensor, "ndim", None) == 1 for tensor in tensors):
        # In a list of vectors each would be taken for a parameter with one column.
        got = f"{len(tensors)} vectors; pass torch.stack(vectors) if each is a row"
        raise failure("rows", _KIND_OF_ROWS, got)
    return _checked_rows([as_tensor(tensor) for tensor in tensors])


def _checked_rows(tensors: list[Any]) -> list[Tensor]:
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
    return tensors


def is_array(value: object) -> bool:
    """Whether the value is a NumPy array; NumPy itself need not be installed."""
    return type(value).__module__ == "numpy" and hasattr(value, "flags")


def as_tensor(value: Any) -> Any:
    """A NumPy array as a tensor, which shares its memory if that may be written; others as is."""
    if not is_array(value):
        return value
    try:
        return torch.as_tensor(value) if value.flags.writeable else torch.tensor(value)
    except TypeError:  # a dtype that torch does not have
        raise failure("rows", "hold real floating-point numbers", f"dtype {value.dtype}") from None


def _check_row_tensor(tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise failure("rows", _KIND_OF_ROWS, type(tensor).__name__)
    if tensor.layout is not torch.strided:
        raise failure("rows", "be dense (call .to_dense() first)", tensor.layout)
    if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        kinds = "be real floating point (float64, float32, bfloat16 or float16)"
        raise failure("rows", kinds, tensor.dtype)
    if tensor.ndim == 0:
        raise failure("rows", "have a first dimension that counts the rows", "a scalar")


def check_enough_rows(n: int, n_needed: int, rule: object) -> None:
    """Check that n is at least the number of rows that the rule needs."""
    if n < n_needed:
        raise failure("rows", f"have at least {n_needed} rows (needed by {rule})", n)


def check_finite_majority(finite: Tensor) -> None:
    """Check that at least half of the rows are finite, by the mask `finite` [n]."""
    n_bad = int((~finite).sum())
    if 2 * n_bad > len(finite):
        raise NonFiniteRowsError(
            f"`rows` must be finite in at least half of the rows, "
            f"got {n_bad} of {len(finite)} with NaN or infinity."
        )


def check_finite_weight(share: float) -> None:
    """Check that the finite rows have at least half of the weight, up to rounding."""
    if share < 0.5 * (1 - 1e-12):
        raise NonFiniteRowsError(
            f"`rows` must be finite in rows of at least half of the weight, got {share:g} of it."
        )


def check_row_weights(row_weights: Tensor, n: int) -> Tensor:
    """Check for [n] finite weights, none negative, not all zero; return them with sum 1.

    The result is float64 on the CPU.
    """
    if not _is_dense(row_weights) or row_weights.is_complex():
        raise failure("row_weights", "be a dense tensor of real numbers", dtype_of(row_weights))
    weights = row_weights.detach().to(device="cpu", dtype=torch.float64)
    if weights.shape != (n,):
        raise failure("row_weights", f"have shape ({n},), one weight per row", tuple(weights.shape))
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise failure("row_weights", "be finite and not negative", weights.tolist())
    largest = weights.max()
    if not bool(largest > 0):
        raise failure("row_weights", "have a sum above 0", weights.tolist())
    weights = weights / largest  # so that the sum cannot overflow
    return weights / weights.sum()


def check_state(state: object, owner: Any) -> None:
    """Check for a state with the keys of the owner's own one."""
    if not isinstance(state, dict) or set(state) != set(owner.state_dict()):
        raise failure("state", f"be a state of {type(owner).__name__}", type(state).__name__)


def check_generator(generator: object) -> None:
    """Check for a torch generator."""
    if not isinstance(generator, torch.Generator):
        raise failure("generator", "be a torch.Generator", type(generator).__name__)


def check_mask(mask: object, n: int, *, of: str = "row") -> None:
    """Check for a bool tensor [n]; `of` names in the message what each entry stands for."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (n,):
        requirement = f"be a bool tensor [{n}], one entry per {of}"
        raise failure("mask", requirement, dtype_and_shape_of(mask))


def check_vector(name: str, vector: object, d: int) -> None:
    """Check for a dense floating tensor [d]."""
    if not isinstance(vector, Tensor) or not _is_dense(vector) or not vector.is_floating_point():
        raise failure(name, "be a dense floating tensor", dtype_of(vector))
    if vector.shape != (d,):
        raise failure(name, f"have shape ({d},), one entry per column", tuple(vector.shape))


def check_lr(lr: object, d: int) -> Rate:
    """Check for a learning rate: a finite number of at least 0, or a tensor [d] of such numbers.

    Returns the number or the tensor; a tensor of zeros is returned as 0.
    """
    if isinstance(lr, Tensor) and lr.ndim == 0 and lr.is_floating_point():
        lr = float(lr)
    if not isinstance(lr, Tensor):
        check_nonnegative("lr", lr)
        return float(lr)  # type: ignore[arg-type]
    check_vector("lr", lr, d)
    if not bool(torch.isfinite(lr).all()) or bool((lr < 0).any()):
        raise failure("lr", "be finite and not negative", "a tensor with other entries")
    return lr.detach() if bool((lr > 0).any()) else 0.0


def _short(value: object) -> str:
    """The beginning of a value's text."""
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _is_number(value: object) -> bool:
    """Whether the value is an int or a float, not NaN, that float64 can hold."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and (abs(value) <= 1e308 or abs(value) == math.inf)
    )


def _is_dense(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided
