"""Numbers and states as text."""

from collections.abc import Sequence

from holdfast.lab.records import Summary

NOT_RUN = "not run"
DIVERGED = "diverged"


def percent(value: float) -> str:
    """Format a percentage with one decimal, without its sign.

    Example:
        >>> percent(88.25)
        '88.2'
    """
    return f"{value:.1f}"


def number(value: float) -> str:
    """Format a number with at most four significant digits, or as a whole number.

    Example:
        >>> number(1163978.0), number(0.012345), number(2e-9)
        ('1,163,978', '0.01235', '2e-09')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def unfinished(run: Summary) -> str:
    """Describe the progress of a run that has not ended."""
    wanted = run.config.get("n_steps", "?")
    total = f"{wanted:,}" if isinstance(wanted, int) else wanted
    return f"unfinished, step {run.n_steps:,} of {total}"


def ending(run: Summary) -> str:
    """Describe how a run ended."""
    if not run.has_ended:
        return unfinished(run)
    return f"diverged at step {run.n_steps:,}" if run.has_diverged else "finished"


def listed(words: Sequence[str]) -> str:
    """Join words for a sentence.

    Example:
        >>> listed(["one", "two", "three"])
        'one, two and three'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun.

    Example:
        >>> counted(1, "run"), counted(1200, "run"), counted(2, "study", "studies")
        ('1 run', '1,200 runs', '2 studies')
    """
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"
