"""Tables for LaTeX, with the rules of booktabs."""

from collections.abc import Iterable

from holdfast.lab.report._accuracy_table import Cell, Grid
from holdfast.lab.report.figures import DataTable

SMALL = r"\scriptsize "

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "Ω": r"$\Omega$",
    "√": r"$\surd$",
    "ξ": r"$\xi$",
    "—": "---",
    "[": "{[}",  # at the start of a line it would be taken for an argument of the line before
    "]": "{]}",
    **{char: f"\\{char}" for char in "{}$&#_%"},
}


def latex(text: str) -> str:
    r"""Any text as text.

    Example:
        >>> latex("50 % of $d_1$")
        '50 \\% of \\$d\\_1\\$'
    """
    return "".join(_ESCAPES.get(char, char) for char in " ".join(text.split()))


def latex_table(table: Grid | DataTable) -> str:
    """A `tabular` for the package booktabs: accuracies, the paper's in small print below each line, or figures as words."""
    return _accuracies(table) if isinstance(table, Grid) else _words(table)


def _accuracies(grid: Grid) -> str:
    """The paper's figures have no columns of their own, which would make Table 2 twice as wide as a page."""
    lines = [
        f"% {' '.join(grid.title.split())}",
        rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}",
        r"\toprule",
        _line(["", *(latex(name) for name, _ in grid.columns)]),
    ]
    for group, rows in grid.groups:
        lines.append(r"\midrule")
        if group:
            lines.append(
                rf"\multicolumn{{{len(grid.columns) + 1}}}{{l}}{{\emph{{{latex(group)}}}}} \\"
            )
        for label, cells in rows:
            lines.append(_line([latex(label), *map(_result, cells)]))
            if any(cell.paper for cell in cells):
                lines.append(_line([rf"\quad {SMALL}the paper", *map(_paper, cells)]) + "[2pt]")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _words(table: DataTable) -> str:
    kinds = "".join("l" if i in table.texts else "r" for i in range(len(table.columns)))
    lines = [f"% {' '.join(table.caption.split())}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    lines += [_line(map(latex, table.columns)), r"\midrule"]
    lines += [_line(map(latex, row)) for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _result(cell: Cell) -> str:
    return rf"\textbf{{{latex(cell.words)}}}" if cell.is_best else latex(cell.words)


def _paper(cell: Cell) -> str:
    return f"{SMALL}{latex(cell.paper)}" if cell.paper else ""
