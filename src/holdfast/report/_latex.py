"""Tables for LaTeX, with the rules of booktabs."""

from holdfast.report._accuracy_table import Cell, Grid
from holdfast.report.figures import DataTable

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
    """A `tabular` for the package booktabs: accuracies, where the paper's have columns of their own, or figures as words."""
    return _accuracies(table) if isinstance(table, Grid) else _words(table)


def _accuracies(grid: Grid) -> str:
    kinds = "".join("rr" if has_paper else "r" for _, has_paper in grid.columns)
    lines = [
        f"% {' '.join(grid.title.split())}",
        r"\begin{tabular}{l" + kinds + "}",
        r"\toprule",
        " & ".join(["", *(_head(name, has_paper) for name, has_paper in grid.columns)]) + r" \\",
    ]
    if grid.has_paper:
        under = [r"here & paper" if has_paper else "here" for _, has_paper in grid.columns]
        lines.append(" & ".join(["", *under]) + r" \\")
    for group, rows in grid.groups:
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{len(kinds) + 1}}}{{l}}{{\emph{{{latex(group)}}}}} \\")
        for label, cells in rows:
            shown = [part for cell, (_, has_paper) in zip(cells, grid.columns, strict=True) for part in _cell(cell, has_paper)]
            lines.append(" & ".join([latex(label), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _words(table: DataTable) -> str:
    kinds = "".join("l" if i in table.texts else "r" for i in range(len(table.columns)))
    lines = [f"% {' '.join(table.caption.split())}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    lines += [" & ".join(map(latex, table.columns)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(latex, row)) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _head(name: str, has_paper: bool) -> str:
    return rf"\multicolumn{{2}}{{c}}{{{latex(name)}}}" if has_paper else rf"\multicolumn{{1}}{{c}}{{{latex(name)}}}"


def _cell(cell: Cell, has_paper: bool) -> list[str]:
    text = rf"\textbf{{{latex(cell.words)}}}" if cell.is_best else latex(cell.words)
    return [text, latex(cell.paper or "")] if has_paper else [text]
