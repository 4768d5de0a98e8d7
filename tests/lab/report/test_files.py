"""The files of a report: complete, the same each time, and safe."""

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast.lab.records.views import AccuracyTable, TableRow
from holdfast.lab.report import collect, write_report
from holdfast.lab.report._rule_names import names_of, share_of
from tests.lab.report.samples import (
    HOSTILE,
    collection,
    config,
    curve_of,
    everything,
    study,
    summary,
    views,
    write_everything,
)


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    return (
        (str(path.relative_to(folder)), path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )


def test_every_file_is_there(report: Path) -> None:
    figures = [
        f"table-a.{i}-{view.kind}"
        for i, view in enumerate(views(), start=1)
        if view.kind != "accuracy-table"
    ] + ["other-runs.2-curves"]
    tables = ["table-a", "table-a.4-measured-1", "other-runs"]
    expected = {"index.html", "report.md"} | {
        f"tables/{name}.{end}" for name in tables for end in ("md", "tex")
    }
    expected |= {f"figures/{name}.{end}" for name in figures for end in ("svg", "png", "pdf")}
    assert {name for name, _ in files(report)} == expected


def test_the_same_input_gives_the_same_bytes_in_whatever_order(tmp_path: Path) -> None:
    root = write_everything(tmp_path / "in")
    paths = [root / "deep", root / "measured", root / "more.jsonl", root / "studies"]
    for name, order in (("one", paths), ("two", paths[::-1])):
        write_report(collect(order), tmp_path / name, notes={"table-a": "Read me."})
    one, two = dict(files(tmp_path / "one")), dict(files(tmp_path / "two"))
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_no_file_tells_when_it_was_made(report: Path) -> None:
    for name, content in files(report):
        assert not re.search(rb"CreationDate|<dc:date>|Matplotlib v\d", content), name


def test_markdown_links_what_is_there(report: Path) -> None:
    text = (report / "report.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) == 8
    assert all((report / link).is_file() for link in links)
    assert "holdfast reproduce table-a" in text
    assert "GmD **stays** where `mean` goes." in text


def test_the_page_links_what_is_there(report: Path) -> None:
    text = (report / "index.html").read_text()
    links = re.findall(r'<a href="([^"#]+)"', text)
    assert len(links) == 2 + 3 * 8
    assert all((report / link).is_file() for link in links)


def test_the_policy_allows_this_script_alone(report: Path) -> None:
    text = (report / "index.html").read_text()
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in text
    assert "default-src &#39;none&#39;" in text


class Tags(HTMLParser):
    """Which elements a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_hostile_texts_do_nothing(tmp_path: Path) -> None:
    run = summary()
    row = TableRow(group=HOSTILE, label=HOSTILE, runs=((run.hash,),), paper=(None,))
    table = AccuracyTable(title=HOSTILE, note=HOSTILE, columns=(HOSTILE,), rows=(row,))
    bad = study(
        table, curve_of(run, HOSTILE), name="../../" + HOSTILE, title=HOSTILE, about=HOSTILE
    )
    found = collection(run, bad, problems=(HOSTILE,))
    page = write_report(found, tmp_path / "out", formats=("svg",), notes={bad.name: HOSTILE})
    parser = Tags()
    parser.feed(page.read_text())
    assert parser.tags.count("script") == 2  # the page's own, and the places of one panel
    assert not any(name.startswith("on") for name in parser.attributes)
    text = (tmp_path / "out" / "report.md").read_text()
    without_code = re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "alert" in without_code
    assert not re.search(r"(?<!\\)<", without_code)
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert all(re.fullmatch(r"[\w./-]+", name) for name, _ in files(tmp_path / "out"))


def test_studies_whose_names_would_share_files_do_not(tmp_path: Path) -> None:
    run = summary()
    some = [
        study(curve_of(run, "a"), name=name)
        for name in ("a/b", "a-b", "A-B", "../..", "other-runs", "live")
    ]
    write_report(collection(run, summary(seed=1), *some), tmp_path, formats=("svg",))
    assert len(list((tmp_path / "figures").iterdir())) == 7
    ids = re.findall(r'\bid="([^"]+)"', (tmp_path / "index.html").read_text())
    assert len(ids) == len(set(ids))


def test_a_study_may_be_called_like_another_s_second_table(tmp_path: Path) -> None:
    run = summary()
    row = TableRow(group="", label="Clean", runs=((run.hash,),), paper=(None,))
    tables = [AccuracyTable(title=f"T{i}", columns=("a",), rows=(row,)) for i in range(2)]
    names = ("x", "x-2", "x-provenance", "x-table")
    write_report(
        collection(run, *(study(*tables, name=name) for name in names)), tmp_path, formats=("svg",)
    )
    assert len(list((tmp_path / "tables").glob("*.md"))) == 8
    ids = re.findall(r'\bid="([^"]+)"', (tmp_path / "index.html").read_text())
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("formats", [(), ("jpg",), ("svg", "gif")])
def test_other_formats_are_refused(formats: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`formats` must be some of svg, png, pdf, got"):
        write_report(everything(), tmp_path, formats=formats)


def test_rules_are_told_apart_by_what_they_differ_in() -> None:
    krum = {"name": "krum", "n_bad": 2}
    configs = [
        config(aggregator=krum),
        config(aggregator={**krum, "n_bad": 3}, share=0.2),
        config(
            aggregator={"name": "mixing", "inner": {"name": "mean"}},
            selector={"name": "top", "fraction": 0.1},
        ),
        {},
    ]
    assert names_of(configs) == [
        ("krum(n_bad=2)", "none"),
        ("krum(n_bad=3)", "collapse"),
        ("mixing | mean, top", "none"),
        ("unknown", "none"),
    ]
    assert [share_of(some) for some in configs] == ["", "20%", "", ""]
