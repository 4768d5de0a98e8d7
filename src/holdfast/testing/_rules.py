"""The promises of every rule."""

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, fields, is_dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.seeds import stream
from holdfast.testing._promises import (
    BrokenPromiseError,
    ensure,
    ensure_refuses,
    keep_promises,
    same_bits,
)
from holdfast.testing._rule_subject import (
    HOSTILE,
    TOLERANCE,
    D,
    N,
    RuleSubject,
    Sampler,
    is_close,
    normal_rows,
)

AWAY = 20.0
"""Distance of honest rows from zero in every coordinate, so that zero is a wrong answer."""


def _is_its_configuration(on: RuleSubject) -> None:
    ensure(is_dataclass(on.rule), "it must be a dataclass")
    ensure(hash(on.rule) == hash(on.rule), "it must have a hash")
    for field in fields(on.rule):  # type: ignore[arg-type]
        try:
            setattr(on.rule, field.name, getattr(on.rule, field.name))
        except FrozenInstanceError:
            continue
        raise BrokenPromiseError(f"the field `{field.name}` can be set; it must be frozen")


def _keeps_shape_and_dtype(on: RuleSubject) -> None:
    for dtype in TOLERANCE:
        rows = on.rows(N, D, dtype=dtype)
        vector = on.call(rows)
        found = (tuple(vector.shape), vector.dtype, vector.device)
        ensure(found == ((D,), dtype, rows.device), f"rows of {dtype} give {found}")


def _agrees_across_dtypes(on: RuleSubject) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows = on.rows(N, D, dtype=dtype)
        wanted = on.call(rows.double())
        ensure(is_close(on.call(rows).double().to(dtype), wanted), f"{dtype} differs from float64")


def _leaves_its_input(on: RuleSubject) -> None:
    rows = on.rows(N, D)
    before, state = rows.clone(), torch.get_rng_state()
    first, again = on.call(rows), on.call(rows)
    ensure(same_bits(rows, before), "a call changes the rows it was given")
    ensure(same_bits(first, again), "two equal calls give different vectors")
    ensure(torch.equal(state, torch.get_rng_state()), "it draws from torch's global generator")


def _permutation(on: RuleSubject) -> None:
    for seed in range(3):
        rows = on.rows(N, D, seed)
        order = torch.randperm(N, generator=stream(seed, "order"))
        ensure(is_close(on.call(rows[order], rows), on.call(rows)), "the order of rows matters")


def _translation(on: RuleSubject) -> None:
    rows = on.rows(N, D, dtype=torch.float64)
    shift = 40 * normal_rows(1, D, seed=9, dtype=torch.float64)
    moved = on.call(rows + shift)
    ensure(is_close(moved, on.call(rows) + shift[0]), "a shift of all rows does not shift it")


def _scale(on: RuleSubject) -> None:
    for dtype, factor in product((torch.float32, torch.float64), (1e-6, 1e6, 2.0**-100, 2.0**100)):
        rows = on.rows(N, D, dtype=dtype)
        scaled = on.call(factor * rows) / factor
        ensure(is_close(scaled, on.call(rows)), f"rows times {factor:g} do not scale it")


def _consensus(on: RuleSubject) -> None:
    rows = normal_rows(1, D).expand(N, D)
    ensure(is_close(on.call(rows), rows[0]), "equal rows are not returned as they are")


def _zero(on: RuleSubject) -> None:
    zero = torch.zeros(N, D)
    ensure(torch.equal(on.call(zero), zero[0]), "rows of zeros do not give zero")


def _breakdown(on: RuleSubject) -> None:
    """The number of bad rows that the rule resists leaves it near the honest ones."""
    for dtype in (torch.float32, torch.float64):
        _breakdown_of(on, on.rows(N, D, dtype=dtype) + AWAY)


def _breakdown_of(on: RuleSubject, rows: Tensor) -> None:
    n_bad = max(1, min(on.rule.n_resisted(N), N // 2))
    honest = rows[n_bad:]
    # A rule that measures from the origin may move by the length of an honest row, others by the
    # spread of the honest rows.
    from_origin = {"translation", "scale", "consensus"} & set(on.lacks)
    spread = (honest - honest.mean(0)).norm(dim=1).max()
    allowed = 2 * float(honest.norm(dim=1).max() if from_origin else spread)
    for kind, corrupt in HOSTILE.items():
        vector = on.call(torch.cat([corrupt(rows[:n_bad]), honest]), honest)
        found = float((vector - honest.mean(0)).norm())
        how = f"{n_bad} of {N} rows ({kind}, {rows.dtype}) move it by {found:g}"
        ensure(found <= allowed, how)


def _stays_finite(on: RuleSubject) -> None:
    for (kind, corrupt), dtype in product(HOSTILE.items(), TOLERANCE):
        rows = on.rows(N, D, dtype=dtype)
        bad = torch.cat([rows[:-1], corrupt(rows[-1:])])
        finite = bool(torch.isfinite(on.call(bad, rows)).all())
        ensure(finite, f"one row of {dtype} ({kind}) makes the result not finite")


def _names_lost_rows(on: RuleSubject) -> None:
    rows = on.rows(N, D)
    bad = rows.clone()
    bad[4, 3], bad[7, 0] = torch.nan, torch.inf
    rejected = on.aggregate(bad, rows).rejected
    ensure(bool(rejected[4] & rejected[7]), "rows that are not finite are not `rejected`")


def _weights_reproduce(on: RuleSubject) -> None:
    rows = on.rows(N, D, dtype=torch.float64)
    result = on.aggregate(rows)
    if result.weights is None:
        return
    ensure(result.weights.shape == (N,), "`weights` must have one entry per row")
    combined = result.weights @ rows
    if result.reference_weight:
        combined += result.reference_weight * on.arguments(rows)["reference"]
    same = torch.allclose(combined, result.vector, atol=1e-10)
    ensure(same, "`weights` do not reproduce the vector")
    ensure(bool((result.weights[result.rejected] == 0).all()), "`rejected` rows have weight")


def _row_weights(on: RuleSubject) -> None:
    rows = on.rows(N + 3, D)
    few, arguments = rows[:N].clone(), on.arguments
    equal = torch.full((N,), 0.3)
    if "row_weights" not in on.rule.takes:
        call = partial(on.rule.aggregate, few, row_weights=equal, **arguments(few))
        ensure_refuses(call, "row_weights", "row weights that are not in `takes`")
        return
    weighted = on.rule(few, row_weights=equal, **arguments(few))
    ensure(same_bits(weighted, on.call(few)), "equal row weights are not the same as none")
    weights = torch.ones(N + 3)
    weights[-3:] = 0
    rows[-1] = torch.nan
    result = on.rule.aggregate(rows, row_weights=weights, **arguments(few))
    ensure(same_bits(result.vector, on.call(few)), "rows of weight zero have a part")
    ensure(bool(result.rejected[-3:].all()), "rows of weight zero are not `rejected`")


def _needs_its_rows(on: RuleSubject) -> None:
    n_needed = on.rule.n_needed
    for n in (n_needed, N):
        finite = bool(torch.isfinite(on.call(on.rows(n, D))).all())
        ensure(finite, f"{n} rows give a result that is not finite")
        ensure(0 <= on.rule.n_resisted(n) <= n, f"`n_resisted({n})` is not between 0 and {n}")
    if n_needed > 1:
        rows = on.rows(n_needed - 1, D)
        ensure_refuses(partial(on.call, rows), "rows", f"fewer than {n_needed} rows")


def _any_storage(on: RuleSubject) -> None:
    rows = on.rows(N, D, dtype=torch.float64)
    plain = on.call(rows)
    parts = [rows[:, :12].reshape(N, 3, 4), rows[:, 12], rows[:, 13:]]
    spread = torch.zeros(N, 2 * D, dtype=torch.float64)
    spread[:, ::2] = rows
    kinds: dict[str, Any] = {
        "a list of parameters": parts,
        "a transposed matrix": rows.T.contiguous().T,
        "a matrix with gaps": spread[:, ::2],
    }
    for kind, stored in kinds.items():
        found = on.call(stored, rows)
        ensure(torch.allclose(found, plain, rtol=1e-9, atol=1e-9), f"{kind} gives another vector")
    one_column = on.call(on.rows(N, 1))
    ensure(bool(torch.isfinite(one_column).all()), "one column gives no finite result")


def _digits(on: RuleSubject) -> None:
    """Float32 rows near 1e5 times their spread give what the same rows give in float64."""
    rows = (1e5 * normal_rows(1, D, 1, torch.float64) + on.rows(N, D).double()).float()
    rounding = 1e5 * 2.0**-22  # of the float32 result itself
    error = float((on.call(rows).double() - on.call(rows.double())).abs().max())
    ensure(error <= 4 * rounding, f"a large part common to all rows costs digits: {error:g}")


PROMISES: dict[str, Callable[[RuleSubject], None]] = {
    "is its configuration": _is_its_configuration,
    "keeps shape and dtype": _keeps_shape_and_dtype,
    "agrees across dtypes": _agrees_across_dtypes,
    "leaves its input": _leaves_its_input,
    "permutation": _permutation,
    "translation": _translation,
    "scale": _scale,
    "consensus": _consensus,
    "zero": _zero,
    "breakdown": _breakdown,
    "stays finite": _stays_finite,
    "names lost rows": _names_lost_rows,
    "weights reproduce the vector": _weights_reproduce,
    "row weights": _row_weights,
    "needs its rows": _needs_its_rows,
    "any storage": _any_storage,
    "digits": _digits,
}


def check_rule(
    rule: Aggregator,
    *,
    lacks: Mapping[str, str] | None = None,
    rows: Sampler = normal_rows,
    arguments: Callable[[Tensor], Mapping[str, Any]] = lambda _: {},
) -> None:
    """Check that the rule keeps the promises of all rules.

    Args:
        rule: the rule; it must be defined for 15 rows.
        lacks: promises that the rule cannot keep, with the reason, such as
            `{"translation": "measures norms from the origin"}`; the check verifies that they are
            broken. A rule that resists no row lacks "breakdown".
        rows: draws honest rows, for rules that need a structure in them.
        arguments: makes the keyword arguments of a call from the honest rows.

    Raises:
        AssertionError: with a sentence that names the first broken promise.

    Example:
        >>> from holdfast.aggregators import Krum, Mean
        >>> check_rule(Krum(n_bad=6))
        >>> check_rule(Mean(), lacks={"breakdown": "one row moves a mean anywhere"})
        >>> check_rule(Mean())
        Traceback (most recent call last):
        AssertionError: Mean() breaks the promise 'breakdown': 1 of 15 rows (...) move it by ...
    """
    lacking = {} if lacks is None else dict(lacks)
    subject = RuleSubject(rule=rule, rows=rows, arguments=arguments, lacks=lacking)
    keep_promises(PROMISES, subject, rule, lacking)
