"""The report as Markdown."""

from collections.abc import Collection as Container
from collections.abc import Sequence

from holdfast.lab.report._accuracy_table import EMPTY, EMPTY_WORDS
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._note_markup import code, escaped, note_markdown
from holdfast.lab.report._sections import Item, Section
from holdfast.lab.report.figures import Cell, DataTable, Grid

PROVENANCE = "### Provenance"
"""Heading in each section."""


def markdown_report(
    found: Collection, sections: Sequence[Section], figure_path: str, title: str
) -> str:
    """Write the whole report; `figure_path` has braces in the place of a figure's name."""
    blocks = [f"# {escaped(title)}", found.overview]
    if found.problems:
        blocks += ["## Problems", "\n".join(f"- {escaped(problem)}" for problem in found.problems)]
    for section in sections:
        blocks += _section(section, figure_path)
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def markdown_table(table: Grid | DataTable) -> str:
    """Write a table; values of the paper are in parentheses behind ours."""
    if isinstance(table, DataTable):
        rows = [[*map(escaped, row)] for row in table.rows]
        return _table([*map(escaped, table.columns)], rows, table.texts)
    columns = ["", *(escaped(name) for name, _ in table.columns)]
    rows = []
    for group, lines in table.groups:
        if group:
            rows.append([f"**{escaped(group)}**", *("" for _ in table.columns)])
        rows += [[_label(table, label), *map(_cell, cells)] for label, cells in lines]
    return _table(columns, rows)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], texts: Container[int] = (0,)
) -> str:
    """Write cells that are Markdown; columns that are not in `texts` are aligned right."""
    alignment = [":---" if i in texts else "---:" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, alignment, *rows]) + "\n"


def _label(table: Grid, label: str) -> str:
    setting = table.settings.get(label)
    return f"{escaped(label)} ({escaped(setting)})" if setting else escaped(label)


def _cell(cell: Cell) -> str:
    text = f"**{escaped(cell.text)}**" if cell.is_best else escaped(cell.text)
    text += f" ({escaped(cell.detail)})" if cell.detail else ""
    if cell.paper is None:
        return text
    return f"{text}; {EMPTY_WORDS if cell.paper == EMPTY else f'paper {cell.paper}'}"


def _section(section: Section, figure_path: str) -> list[str]:
    blocks = [f"## {escaped(section.title)}"]
    blocks += [f"**{escaped(section.verdict)}**"] if section.verdict else []
    blocks.append(escaped(section.about))
    blocks += [f"Command: {code(section.command)}"] if section.command else []
    blocks.append(note_markdown(section.note))
    names = [f"{escaped(name)}: {escaped(text)}" for name, text in section.names.items()]
    blocks.append("; ".join(names) + "." if names else "")
    for item in section.items:
        blocks += _item(section, item, figure_path)
    facts = [f"- {name}: {escaped(text)}" for name, text in section.provenance.facts]
    blocks += [PROVENANCE, "\n".join(facts)]
    commands = [f"- {code(command)}" for command in section.provenance.commands]
    return blocks + (["Commands of the runs:", "\n".join(commands)] if commands else [])


def _item(section: Section, item: Item, figure_path: str) -> list[str]:
    if isinstance(item, DataTable):
        return [f"### {escaped(item.caption)}", markdown_table(item)]
    blocks = [f"### {escaped(item.title)}", escaped(item.note)]
    if isinstance(item, Grid):
        return [*blocks, markdown_table(item)]
    if item.grid is not None:
        return [*blocks, markdown_table(item.grid)]
    if item.panels:
        blocks.append(f"![{escaped(item.title)}]({figure_path.format(section.stem(item))})")
    blocks += [escaped(remark) for remark in item.remarks]
    for table in item.tables:
        blocks += [f"**{escaped(table.caption)}**" if item.panels else "", markdown_table(table)]
    return blocks
