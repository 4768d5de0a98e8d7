"""Tables and notes; whatever a label contains is shown and never active."""

import re
from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from holdfast.lab.report._accuracy_table import grid
from holdfast.lab.report._markdown import markdown_table
from holdfast.lab.report._note_markup import code, escaped, note_html, note_markdown
from holdfast.lab.report.figures import AccuracyTable, Grid, PaperCell, TableRow
from tests.lab.report.samples import HOSTILE, collection, everything, summary, views


def sample() -> Grid:
    table = views()[0]
    assert isinstance(table, AccuracyTable)
    return grid(table, everything())


def hostile() -> Grid:
    run = summary()
    row = TableRow(group=HOSTILE, label=HOSTILE, runs=((run.hash,),), paper=(PaperCell(mean=88.0),))
    return grid(AccuracyTable(title=HOSTILE, columns=(HOSTILE,), rows=(row,)), collection(run))


def test_markdown_table() -> None:
    assert markdown_table(sample()).splitlines() == [
        "|  | SGD | GmD | BGmD |",
        "| :--- | ---: | ---: | ---: |",
        "| Clean | **90.5** (90.0 to 91.0); paper 89.39 ± 0.28 | 80.5 (80.0 to 81.0); paper 88.00 "
        "| 70.5 (70.0 to 71.0) |",
        "| **Gradient attack** |  |  |  |",
        "| Sign flip, 40% | diverged; empty in the paper | **70.5** (70.0 to 71.0); paper 88.00 "
        "| 60.5 (60.0 to 61.0) |",
    ]


def test_every_line_of_a_hostile_table_has_its_cells() -> None:
    rows = markdown_table(hostile()).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}


@given(st.text())
def test_no_text_escapes_markdown(text: str) -> None:
    shown = escaped(text)
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


NOTES = {
    "": ("", ""),
    "one\ntwo": ("<p>one\ntwo</p>", "one two"),
    "one\n \ntwo": ("<p>one</p>\n<p>two</p>", "one\n\ntwo"),
    "a `**b**` c": ("<p>a <code>**b**</code> c</p>", "a `**b**` c"),
    "**a `b`**": ("<p><strong>a <code>b</code></strong></p>", "**a `b`**"),
    "2 ** 3 ** 4": ("<p>2 ** 3 ** 4</p>", r"2 \*\* 3 \*\* 4"),
    "*a* 5 %": ("<p><em>a</em> 5\N{NO-BREAK SPACE}%</p>", "*a* 5 %"),
    "- a\n\n  b\n- c": (
        "<ul>\n<li>\n<p>a</p>\n<p>b</p>\n</li>\n<li>\n<p>c</p>\n</li>\n</ul>",
        "- a\n\n  b\n\n- c",
    ),
    "[y](https://z.org)": ('<p><a href="https://z.org">y</a></p>', "[y](https://z.org)"),
    "[y](javascript:z)": ("<p>[y](javascript:z)</p>", r"\[y\](javascript:z)"),
    "# <b> ![x](y.png)": ('<p># &lt;b&gt; !<a href="y.png">x</a></p>', "\\# \\<b\\> \\![x](y.png)"),
}


def test_notes_are_markdown_without_html_headings_and_images() -> None:
    for text, (html, markdown) in NOTES.items():
        assert note_html(text).strip() == html, text
        assert note_markdown(text) == markdown, text


def shown(text: str) -> str:
    """What a reader of the page sees of a note."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", note_html(text))).split())


@given(st.text(alphabet="ab *`\n<&-[]()1.\\"))
def test_notes_have_no_other_elements_and_lose_nothing(text: str) -> None:
    elements = set(re.findall(r"</?(\w+)", note_html(text)))
    assert elements <= {"p", "strong", "em", "code", "ul", "ol", "li", "a", "br"}
    if "](" not in text:
        assert [char for char in shown(text) if char in "ab<&"] == re.findall("[ab<&]", text)


@given(st.text(alphabet="ab *`\n<&[]()"))
def test_the_markdown_of_a_note_shows_the_same(text: str) -> None:
    assert shown(note_markdown(text)) == shown(text)


def test_code_in_a_table_cell_or_a_note_is_not_active() -> None:
    assert note_markdown("<i> **b_d** `a_b`") == "\\<i\\> **b\\_d** `a_b`"
