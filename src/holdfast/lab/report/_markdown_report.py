"""The whole report as Markdown."""

from collections.abc import Sequence

from holdfast.lab.report._accuracy_table import Grid
from holdfast.lab.report._collection import Collection
from holdfast.lab.report._markdown import code, markdown, markdown_note, markdown_table
from holdfast.lab.report._sections import Item, Section
from holdfast.lab.report.figures import DataTable


def markdown_report(found: Collection, sections: Sequence[Section], figure_path: str) -> str:
    """Everything but the interaction; `figure_path` is where a figure lies, with braces in the place of its name."""
    blocks = ["# Report", found.overview]
    if found.problems:
        blocks += ["## Problems", "\n".join(f"- {markdown(problem)}" for problem in found.problems)]
    for section in sections:
        blocks += _section(section, figure_path)
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def _section(section: Section, figure_path: str) -> list[str]:
    blocks = [f"## {markdown(section.title)}", markdown(section.about)]
    if section.command:
        blocks.append(f"Command: {code(section.command)}")
    blocks.append(markdown_note(section.note))
    for item in section.items:
        blocks += _item(section, item, figure_path)
    blocks += [
        "### Where it comes from",
        "\n".join(f"- {name}: {markdown(text)}" for name, text in section.provenance.facts),
    ]
    commands = section.provenance.commands
    return blocks + (
        ["Commands of the runs:", "\n".join(f"- {code(command)}" for command in commands)]
        if commands
        else []
    )


def _item(section: Section, item: Item, figure_path: str) -> list[str]:
    if isinstance(item, DataTable):
        return [f"### {markdown(item.caption)}", markdown_table(item)]
    blocks = [f"### {markdown(item.title)}", markdown(item.note)]
    if isinstance(item, Grid):
        return [*blocks, markdown_table(item)]
    if item.panels:
        blocks.append(f"![{markdown(item.title)}]({figure_path.format(section.stem(item))})")
    blocks += [markdown(remark) for remark in item.remarks]
    for table in item.tables:
        blocks += [f"**{markdown(table.caption)}**" if item.panels else "", markdown_table(table)]
    return blocks
