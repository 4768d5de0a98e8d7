"""Numbers and states in words."""

from collections.abc import Sequence

from holdfast.lab.records import Summary

NOT_RUN = "not run"
DIVERGED = "diverged"


def percent(value: float) -> str:
    """A percentage with one decimal, without its sign.

    Example:
        >>> percent(88.25)
        '88.2'
    """
    return f"{value:.1f}"


def number(value: float) -> str:
    """At most four digits that tell something, with commas between thousands.

    Example:
        >>> number(1163978.0), number(0.012345), number(2e-9)
        ('1,163,978', '0.01235', '2e-09')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def unfinished(run: Summary) -> str:
    """How far a run came that did not end."""
    return f"unfinished, step {run.content['n_steps']} of {run.config.get('n_steps', '?')}"


def ending(run: Summary) -> str:
    """How a run ended."""
    if not run.has_ended:
        return unfinished(run)
    return f"diverged at step {run.content['n_steps']}" if run.has_diverged else "finished"


def listed(words: Sequence[str]) -> str:
    """Words in a sentence.

    Example:
        >>> listed(["one", "two", "three"])
        'one, two and three'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(n: int, noun: str) -> str:
    """A number and what is counted.

    Example:
        >>> counted(1, "run"), counted(1200, "run")
        ('1 run', '1,200 runs')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def overview(n_studies: int, n_runs: int, n_measurements: int) -> str:
    """What a report is made of, in a sentence.

    Example:
        >>> overview(2, 25, 0)
        '2 studies and 25 runs.'
    """
    studies = f"{n_studies:,} {'study' if n_studies == 1 else 'studies'}"
    words = [studies] if n_studies else []
    words += [counted(n_runs, "run")] if n_runs else []
    words += [counted(n_measurements, "measurement")] if n_measurements else []
    return f"{listed(words)}."
