"""What the content of a summary must look like."""

from collections.abc import Callable
from typing import Any

from holdfast.checks import failure
from holdfast.lab.records._documents import LARGEST, short
from holdfast.lab.records._reading import is_end

Check = Callable[[object], bool]


def check_form(content: dict[str, Any]) -> None:
    """Every value that a report looks at is what it should be.

    Raises:
        ValueError: naming the first that is not.
    """
    for name, is_right in FORM.items():
        if name not in content or not is_right(content[name]):
            raise failure("summary", f"have {name!r} as a run leaves it", short(content.get(name)))
    lengths = {len(values) for values in content["series"].values()}
    if len(lengths) != 1 or "step" not in content["series"]:
        raise failure("summary", "have series of one length, with their steps", sorted(lengths))
    rows = content["rows"]
    n_shown = {len(rows[key]) for key in ("step", "bad", "rejected")} | (
        {len(rows["weights"])} if rows["weights"] else set()
    )
    if len(n_shown) != 1 or len({len(line) for line in rows["weights"] or ()}) > 1:
        raise failure("summary", "have rows of one length", sorted(n_shown))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _or_none(is_right: Check) -> Check:
    return lambda value: value is None or is_right(value)


def _list_of(is_right: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def _is_evaluation(value: object) -> bool:
    if (
        not isinstance(value, dict)
        or not _is_count(value.get("step"))
        or not _is_share(value.get("accuracy"))
    ):
        return False
    return _or_none(_is_number)(value.get("test_loss")) and _or_none(_is_share)(
        value.get("attack_success")
    )


def _is_series(value: object) -> bool:
    return isinstance(value, dict) and all(map(_list_of(_or_none(_is_number)), value.values()))


def _is_times(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_rows(value: object) -> bool:
    if (
        not isinstance(value, dict)
        or "weights" not in value
        or not _list_of(_is_count)(value.get("step"))
    ):
        return False
    identities = _list_of(_list_of(_is_count))
    weights = value["weights"]
    is_right = weights is None or _list_of(lambda line: _list_of(_is_number)(line) and line != [])(
        weights
    )
    return is_right and identities(value.get("bad")) and identities(value.get("rejected"))


FORM: dict[str, Check] = {
    "n_steps": _is_count,
    "end": _or_none(is_end),
    "evaluations": _list_of(_is_evaluation),
    "series": _is_series,
    "seconds": _is_times,
    "rows": _is_rows,
}
