"""The promises of every attack."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.geometry import DenseRows
from holdfast.layout import Layout
from holdfast.testing._attack_subject import (
    DTYPES,
    EXTREMES,
    SHAPES,
    AttackSubject,
    D,
    N,
    mask_of,
)
from holdfast.testing._promises import (
    BrokenPromiseError,
    ensure,
    ensure_refuses,
    keep_promises,
    same_bits,
)
from holdfast.threats import Attack, Rule


def _states_its_aim(on: AttackSubject) -> None:
    for name in ("name", "aim"):
        stated = getattr(on.attack, name, None)
        ensure(isinstance(stated, str) and bool(stated), f"`{name}` must be a text")
    aim = on.attack.aim
    ensure(aim.endswith(".") and "\n" not in aim, f"`aim` must be one sentence, got {aim!r}")


def _is_its_configuration(on: AttackSubject) -> None:
    attack = on.attack
    ensure(is_dataclass(attack), "it must be a dataclass")
    ensure(hash(attack) == hash(attack) and attack == attack, "it must have a hash")
    for field in fields(attack):  # type: ignore[arg-type]
        try:
            setattr(attack, field.name, getattr(attack, field.name))
        except FrozenInstanceError:
            continue
        raise BrokenPromiseError(
            f"the field `{field.name}` can be set; the dataclass must be frozen"
        )


def _touches_only_bad_rows(on: AttackSubject) -> None:
    for (n, d, n_bad), dtype in product(SHAPES, on.dtypes):
        rows, mask = on.rows(n, d, dtype=dtype), mask_of(n, n_bad)
        where = f"for rows [{n}, {d}] of {dtype}, {n_bad} of them bad"
        before, mask_before = rows.clone(), mask.clone()
        sent = on.call(rows, mask)
        ensure(same_bits(rows, before), f"a call changes the rows it was given, {where}")
        ensure(torch.equal(mask, mask_before), f"a call changes the mask, {where}")
        ensure(sent.shape == rows.shape, f"the result has shape {tuple(sent.shape)}, {where}")
        ensure(sent.dtype == dtype, f"the result has dtype {sent.dtype}, {where}")
        ensure(sent.data_ptr() != rows.data_ptr(), f"the result shares memory, {where}")
        ensure(same_bits(sent[~mask], rows[~mask]), f"honest rows are not as they were, {where}")


def _changes_every_bad_row(on: AttackSubject) -> None:
    rows, mask = on.rows(), mask_of()
    changed = (on.call(rows, mask)[mask] != rows[mask]).any(1)
    ensure(bool(changed.all()), "some bad rows are sent as they were")


def _changes_nothing_without_bad_rows(on: AttackSubject) -> None:
    rows = on.rows()
    ensure(same_bits(on.call(rows, mask_of(N, 0)), rows), "rows change although none is bad")


def _needs_honest_rows_or_not(on: AttackSubject) -> None:
    rows, mask = on.rows(), mask_of(N, N)
    if on.attack.looks_at_honest:
        ensure_refuses(partial(on.call, rows, mask), "mask", "a mask without honest rows")
    else:
        ensure(on.call(rows, mask).shape == (N, D), "the shape changes if all rows are bad")


def _is_reproducible(on: AttackSubject) -> None:
    for dtype in on.dtypes:
        rows, mask = on.rows(dtype=dtype), mask_of()
        global_state = torch.get_rng_state()
        first, again = on.call(rows, mask), on.call(rows, mask)
        is_untouched = torch.equal(global_state, torch.get_rng_state())
        ensure(is_untouched, "it draws from torch's global generator")
        ensure(same_bits(first, again), f"equal generators give different rows of {dtype}")
        other = on.call(rows, mask, seed=1)
        if "generator" in on.attack.needs:
            ensure(not same_bits(first, other), "it needs a generator and does not draw from it")
        else:
            ensure(same_bits(first, other), "it draws from a generator that is not in `needs`")


def _keeps_its_state_outside(on: AttackSubject) -> None:
    """The same state gives the same rows, whatever the object did in between."""
    mask, state = mask_of(), None
    for seed in range(3):
        rows = on.rows(seed=seed)
        before = rows.clone()
        state = on.learn(rows, mask, state)
        ensure(same_bits(rows, before), "`learn` changes the rows it was given")
    takes, rows = on.attack.takes_state, on.rows(seed=3)
    if not takes:
        ensure(state is None, "`learn` returns a state, but `takes_state` is False")
        refused = torch.zeros(D, dtype=on.dtype)
        ensure_refuses(partial(on.call, rows, mask, state=refused), "state", "a state")
        return
    ensure(isinstance(state, Tensor), "`takes_state` is True, but `learn` returns no tensor")
    assert state is not None
    kept, first = state.clone(), on.call(rows, mask, state=state)
    on.call(on.rows(seed=4), mask, seed=1, state=state)
    on.learn(on.rows(seed=5), mask, state)
    ensure(same_bits(first, on.call(rows, mask, state=state)), "calls depend on earlier calls")
    ensure(same_bits(state, kept), "a call changes the state it was given")
    for wrong in (torch.zeros(N + D, dtype=on.dtype), torch.zeros_like(state, dtype=torch.int64)):
        ensure_refuses(partial(on.call, rows, mask, state=wrong), "state", "a wrong state")


def _overwrites_as_it_calls(on: AttackSubject) -> None:
    mask, state = mask_of(), None
    for seed in range(3):
        rows = on.rows(seed=seed)
        sent, learned = on.call(rows, mask, state=state), on.learn(rows, mask, state)
        whole = torch.full((2 * N, 2 * D), 7.0, dtype=on.dtype)
        view = whole[::2, ::2]  # with gaps in memory
        view.copy_(rows)
        found = on.attack.overwrite(view, mask, state=state, **on.known(D))
        ensure(same_bits(view, sent), "`overwrite` and a call give different rows")
        gaps = torch.cat([whole[1::2].flatten(), whole[:, 1::2].flatten()])
        ensure(bool((gaps == 7.0).all()), "`overwrite` changes memory between the rows")
        if found is None or learned is None:
            ensure(found is learned, "only one of `overwrite` and `learn` returns a state")
        else:
            ensure(same_bits(found, learned), "`overwrite` and `learn` return different states")
        state = learned


def _accepts_all_kinds_of_rows(on: AttackSubject) -> None:
    matrix, mask, known = on.rows(), mask_of(), on.known
    parts = [matrix[:, :9].reshape(N, 3, 3), matrix[:, 9:]]
    wanted = on.call(matrix, mask)
    listed = on.attack(parts, mask, **known(D))
    shapes = [part.shape for part in listed] == [part.shape for part in parts]
    ensure(shapes, "a list of tensors comes back in other shapes")
    flat = torch.cat([part.flatten(1) for part in listed], dim=1)
    ensure(same_bits(flat, wanted), "a list of tensors and a matrix give different rows")
    layout = Layout(nn.utils.skip_init(nn.Linear, 3, 3, dtype=on.dtype))
    for rows in (layout.rows(matrix), layout.rows(parts), DenseRows(parts), DenseRows(matrix)):
        sent: DenseRows = on.attack(rows, mask, **known(D))
        ensure(same_bits(sent.matrix(), wanted), "DenseRows and a matrix give different rows")
        kept = sent.layout is rows.layout and sent.sections == rows.sections
        ensure(kept, "DenseRows lose their layout")
        ensure(same_bits(rows.matrix(), matrix), "a call changes the DenseRows it was given")
    ensure(same_bits(on.call(matrix.T.contiguous().T, mask), wanted), "strides change the result")
    needy = matrix.clone().requires_grad_()
    ensure(not on.call(needy, mask).requires_grad, "the result requires a gradient")


def _survives_extremes(on: AttackSubject) -> None:
    mask = mask_of()
    for (kind, make), dtype in product(EXTREMES.items(), on.dtypes):
        rows = make(on.rows(dtype=dtype))
        sent, state = on.call(rows, mask), on.learn(rows, mask)
        on.call(rows, mask, state=state)
        if on.attack.saturates and bool(rows.isfinite().all()):
            finite = bool(sent.isfinite().all())
            ensure(finite, f"finite rows ({kind}, {dtype}) give values that are not finite")
            finite = state is None or bool(state.isfinite().all())
            ensure(finite, f"finite rows ({kind}, {dtype}) give a state that is not finite")


def _refuses_wrong_arguments(on: AttackSubject) -> None:
    rows, bad = on.rows(), mask_of()
    for mask in (bad[1:], bad.long(), bad[:, None], bad.tolist(), None):
        of = f"a mask such as {mask}"
        ensure_refuses(partial(on.call, rows, mask), "mask", of)
        ensure_refuses(partial(on.learn, rows, mask), "mask", of)
    for name in sorted(on.attack.needs):
        known: Any = on.known(D) | {name: None}
        ensure_refuses(partial(on.attack, rows, bad, **known), name, f"no {name}")
    if on.attack.needs_directions:
        known = on.known(D) | {"directions": {}}
        ensure_refuses(partial(on.attack, rows, bad, **known), "directions", "no directions")


def _rounds_half_precision_once(on: AttackSubject) -> None:
    for dtype in {torch.bfloat16, torch.float16}.intersection(on.dtypes):
        rows, mask = on.rows(dtype=dtype), mask_of()
        largest = torch.finfo(dtype).max
        wide = on.call(rows.float(), mask)
        wide = wide.where(~wide.isfinite(), wide.clamp(-largest, largest))
        is_equal = torch.allclose(on.call(rows, mask), wide.to(dtype), 0, 0, equal_nan=True)
        ensure(is_equal, f"rows of {dtype} are not those of float32, rounded once")


def _scales_with_the_rows(on: AttackSubject) -> None:
    rows, mask = on.rows(), mask_of()
    # Where squares of float32 overflow or vanish; less for half precision.
    exponent = 100 if torch.finfo(on.dtype).bits > 16 else 4
    for factor in (2.0**-exponent, 2.0**exponent):
        scaled, wanted = on.call(factor * rows, mask), factor * on.call(rows, mask)
        is_equal = torch.allclose(scaled, wanted, 0, 0, equal_nan=True)
        ensure(is_equal, f"rows times {factor:g} do not give the result times {factor:g}")


PROMISES: dict[str, Callable[[AttackSubject], None]] = {
    "states its aim": _states_its_aim,
    "is its configuration": _is_its_configuration,
    "touches only bad rows": _touches_only_bad_rows,
    "changes every bad row": _changes_every_bad_row,
    "changes nothing without bad rows": _changes_nothing_without_bad_rows,
    "says whether it needs honest rows": _needs_honest_rows_or_not,
    "is reproducible": _is_reproducible,
    "keeps its state outside": _keeps_its_state_outside,
    "overwrites as it calls": _overwrites_as_it_calls,
    "accepts all kinds of rows": _accepts_all_kinds_of_rows,
    "survives extremes": _survives_extremes,
    "refuses wrong arguments": _refuses_wrong_arguments,
    "rounds half precision once": _rounds_half_precision_once,
    "scales with the rows": _scales_with_the_rows,
}


def check_attack(
    attack: Attack,
    *,
    rule: Rule | str = "geometric-median",
    dtypes: Sequence[torch.dtype] = DTYPES,
    lacks: Collection[str] = (),
) -> None:
    """Check that the attack keeps the promises of all attacks.

    Args:
        attack: the attack.
        rule: the rule that the attackers know, for attacks that use it.
        dtypes: the dtypes of rows that it accepts.
        lacks: names of promises that the attack cannot keep, such as "scales with the rows" for
            noise of a fixed size; the check verifies that they are broken. A mapping from names to
            reasons is accepted.

    Raises:
        AssertionError: with a sentence that names the first broken promise.

    Example:
        >>> from holdfast.threats import NoisyRows
        >>> check_attack(NoisyRows(), lacks={"scales with the rows": "the noise has a fixed size"})
        >>> check_attack(NoisyRows())
        Traceback (most recent call last):
        AssertionError: NoisyRows(deviation=10.0, replace=False) breaks the promise 'scales with ...
    """
    subject = AttackSubject(attack=attack, rule=rule, dtypes=tuple(dtypes))
    keep_promises(PROMISES, subject, attack, lacks)
