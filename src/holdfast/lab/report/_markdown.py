"""Tables and texts for Markdown."""

import re
from collections.abc import Collection, Sequence

from holdfast.lab.report._accuracy_table import EMPTY, EMPTY_WORDS, Cell, Grid
from holdfast.lab.report._prose import Span, paragraphs
from holdfast.lab.report.figures import DataTable

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$<>-])")


def markdown(text: str) -> str:
    r"""Any text as text, in one line.

    Example:
        >>> print(markdown("<b> a_b & c"))
        \<b\> a\_b &amp; c
    """
    return _SPECIAL.sub(_escaped, " ".join(text.split()).replace("&", "&amp;"))


def _escaped(found: re.Match[str]) -> str:
    """Signs that mark only the start of a line stay as they are within one."""
    inside = found.start() > 0 and found[1] in "()#+!-"
    return found[1] if inside else f"\\{found[1]}"


def code(text: str) -> str:
    """A text as code, whatever backticks are in it."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    line = re.sub(r"\s*\n\s*", " ", text)
    return f"{fence}{pad}{line}{pad}{fence}"


def markdown_note(text: str) -> str:
    """A note with its `code` and **bold**, and nothing else of what it may contain at work."""
    return "\n\n".join("".join(map(_span, spans)) for spans in paragraphs(text))


def _span(span: Span) -> str:
    kind, text = span
    if kind == "code":
        return code(text)
    shown = f"{' ' * text.startswith(' ')}{markdown(text)}{' ' * (text.endswith(' ') and bool(text.strip()))}"
    return f"**{shown}**" if kind == "bold" else shown


def markdown_rows(
    columns: Sequence[str], rows: Sequence[Sequence[str]], texts: Collection[int] = (0,)
) -> str:
    """A table of cells that are Markdown already; columns that hold no `texts` are aligned to the right."""
    aligned = [":---" if i in texts else "---:" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, aligned, *rows]) + "\n"


def markdown_table(table: Grid | DataTable) -> str:
    """Accuracies, with the paper's figures in brackets behind our own, or figures as words."""
    return _accuracies(table) if isinstance(table, Grid) else _words(table)


def _accuracies(grid: Grid) -> str:
    columns = ["", *(markdown(name) for name, _ in grid.columns)]
    rows: list[list[str]] = []
    for group, lines in grid.groups:
        if group:
            rows.append([f"**{markdown(group)}**", *("" for _ in grid.columns)])
        rows += [[markdown(label), *map(_cell, cells)] for label, cells in lines]
    return markdown_rows(columns, rows)


def _words(table: DataTable) -> str:
    return markdown_rows(
        [*map(markdown, table.columns)], [[*map(markdown, row)] for row in table.rows], table.texts
    )


def _cell(cell: Cell) -> str:
    text = f"**{markdown(cell.words)}**" if cell.is_best else markdown(cell.words)
    if cell.paper is None:
        return text
    return f"{text} ({EMPTY_WORDS if cell.paper == EMPTY else f'paper {cell.paper}'})"
