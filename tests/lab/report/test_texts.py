"""Tables and texts: Markdown, LaTeX, notes; whatever a label holds, it is shown and does nothing."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.lab.report._accuracy_table import Grid, grid
from holdfast.lab.report._latex import latex, latex_table
from holdfast.lab.report._markdown import code, markdown, markdown_note, markdown_table
from holdfast.lab.report._prose import paragraphs
from holdfast.lab.report.figures import AccuracyTable, PaperCell, TableRow
from tests.lab.report.samples import HOSTILE, collection, everything, summary, views

ESCAPED = re.compile(r"\\(?:[{}$&#_%]|text\w+\{\})|\$\\(?:pm|Omega|surd|xi)\$|\{[\[\]]\}")


def sample() -> Grid:
    table = views()[0]
    assert isinstance(table, AccuracyTable)
    return grid(table, everything())


def hostile() -> Grid:
    run = summary()
    row = TableRow(group=HOSTILE, label=HOSTILE, runs=((run.hash,),), paper=(PaperCell(mean=88.0),))
    return grid(AccuracyTable(title=HOSTILE, columns=(HOSTILE,), rows=(row,)), collection(run))


def test_markdown_table() -> None:
    # Two seeds that differ by 1 percent: half of the interval is 12.706 * 0.5.
    assert markdown_table(sample()).splitlines() == [
        "|  | SGD | GmD | BGmD |",
        "| :--- | ---: | ---: | ---: |",
        "| Clean | **90.5 ± 6.4** (paper 89.39 ± 0.28) | 80.5 ± 6.4 (paper 88.00) | 70.5 ± 6.4 |",
        "| **Gradient attack** |  |  |  |",
        "| Sign flip, 40% | diverged (empty in the paper) | **70.5 ± 6.4** (paper 88.00) | 60.5 ± 6.4 |",
    ]


def test_latex_table() -> None:
    assert latex_table(sample()).splitlines() == [
        "% Test accuracy in percent",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r" & SGD & GmD & BGmD \\",
        r"\midrule",
        r"Clean & \textbf{90.5 $\pm$ 6.4} & 80.5 $\pm$ 6.4 & 70.5 $\pm$ 6.4 \\",
        r"\quad \scriptsize the paper & \scriptsize 89.39 $\pm$ 0.28 & \scriptsize 88.00 &  \\[2pt]",
        r"\midrule",
        r"\multicolumn{4}{l}{\emph{Gradient attack}} \\",
        r"Sign flip, 40\% & diverged & \textbf{70.5 $\pm$ 6.4} & 60.5 $\pm$ 6.4 \\",
        r"\quad \scriptsize the paper & \scriptsize --- & \scriptsize 88.00 &  \\[2pt]",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_every_line_of_a_hostile_table_has_its_cells() -> None:
    rows = markdown_table(hostile()).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
    lines = latex_table(hostile()).splitlines()
    cells = next(line for line in lines if r"\textbf" in line)
    assert len(re.findall(r"(?<!\\)&", cells)) == 1
    assert all("\n" not in line and line.startswith("%") for line in lines[:1])


@given(st.text())
@example("1/2 - Ω(√(d/b)) ± ξ")
def test_no_text_escapes_latex(text: str) -> None:
    assert not set(ESCAPED.sub("", latex(text))) & set("\\{}$&#_%~^<>[]\n")


def test_latex_needs_no_font_encoding_but_the_default_one() -> None:
    assert latex('a "word"') == "a ''word''"  # \textquotedbl is not in OT1


@given(st.text())
def test_no_text_escapes_markdown(text: str) -> None:
    shown = markdown(text)
    bare = re.sub(r"\\[\\`*_{}\[\]()#+!|~$<>-]", "", shown)
    assert not set(bare) & set("\\`*_{}[]|~$<>\n")
    assert not re.match(r"[#+-]", bare) or re.match(r"\\", shown)
    assert not re.search(r"&(?!amp;)", shown)


@given(st.text(alphabet="a` "))
def test_code_holds_its_backticks(text: str) -> None:
    shown = code(text)
    fence = re.match("`+", shown)
    assert fence
    assert fence[0] not in " ".join(text.split()) or not text.strip("` ")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("one\ntwo", [[("text", "one two")]]),
        ("one\n \ntwo", [[("text", "one")], [("text", "two")]]),
        ("a `**b**` c", [[("text", "a "), ("code", "**b**"), ("text", " c")]]),
        ("**a `b`**", [[("bold", "a `b`")]]),
        ("2 ** 3 ** 4", [[("text", "2 ** 3 ** 4")]]),
        ("<b> *x* [y](z)", [[("text", "<b> *x* [y](z)")]]),
    ],
)
def test_notes_know_code_and_bold_alone(text: str, parts: list[list[tuple[str, str]]]) -> None:
    assert paragraphs(text) == parts


@given(st.text(alphabet="ab *`\n<&"))
def test_notes_lose_nothing_but_their_marks(text: str) -> None:
    shown = "".join(part for spans in paragraphs(text) for _, part in spans)
    assert re.sub(r"[\s*`]", "", shown) == re.sub(r"[\s*`]", "", text)


def test_a_note_in_markdown() -> None:
    assert markdown_note("<i> **b_d** `a_b`\n\n# two") == "\\<i\\> **b\\_d** `a_b`\n\n\\# two"
