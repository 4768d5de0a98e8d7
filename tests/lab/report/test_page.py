"""The page in a browser."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from holdfast.aggregators import GeometricMedian, Mean, RadiusFilter
from holdfast.lab.config import Threat, Workers
from holdfast.lab.optimizers import Sgd
from holdfast.lab.report import write_report
from holdfast.threats import Adversaries, ScaledFlip
from tests.lab.report.samples import collection, configured

Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, report: Path) -> Iterator[Open]:
    """Opens the report; at the end, nothing may have gone wrong or over the network."""
    address = (report / "index.html").as_uri()
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def note_request(request: Request) -> None:
        if request.url.split("#")[0] != address and not request.url.startswith("data:"):
            wrong.append(request.url)

    def open_it(width: int = 1280, scheme: str = "light", **more: object) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", note_request)
        page.goto(address)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert wrong == []


def assert_no_sideways_scrolling(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth")


def assert_shown(page: Page, key: str, is_shown: bool) -> None:
    """Whether the artists with this key are drawn in all panels of the curves."""
    curves = page.locator("figure").filter(has_text="Over the steps").first
    artists = curves.locator(f'.drawing [data-series="{key}"]')
    assert artists.count() > 1
    assert {
        artists.nth(i).evaluate("node => getComputedStyle(node).display !== 'none'")
        for i in range(artists.count())
    } == {is_shown}


def test_nothing_is_wider_than_the_screen(open_page: Open) -> None:
    page = open_page()
    page.evaluate("document.querySelectorAll('details').forEach(node => node.open = true)")
    for width in (320, 360, 768, 1280, 2200):
        page.set_viewport_size({"width": width, "height": 900})
        assert_no_sideways_scrolling(page)


def test_check_boxes_hide_and_show_a_method(open_page: Open) -> None:
    page = open_page()
    box = (
        page.locator("figure")
        .filter(has_text="Over the steps")
        .first.get_by_label("GmD", exact=True)
    )
    key = box.get_attribute("data-key")
    assert key is not None
    assert_shown(page, key, True)
    box.uncheck()
    assert_shown(page, key, False)
    box.check()
    assert_shown(page, key, True)


def test_pointing_shows_what_is_nearest(open_page: Open) -> None:
    page = open_page()
    panel = page.locator(".panel").first
    tip = panel.locator(".tip")
    assert not tip.is_visible()
    drawing = panel.locator(".drawing > svg")
    box = drawing.bounding_box()
    assert box
    drawing.hover(position={"x": box["width"] - 8, "y": 12})
    assert tip.inner_text() == "SGD\nstep 40: 90.5 (90.0 to 91.0)"
    assert panel.locator(".dot").is_visible()
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_hidden_methods_are_not_pointed_at(open_page: Open) -> None:
    page = open_page()
    figure = page.locator("figure").first
    figure.get_by_label("SGD", exact=True).uncheck()
    drawing = figure.locator(".drawing > svg").first
    box = drawing.bounding_box()
    assert box
    drawing.hover(position={"x": box["width"] - 8, "y": 12})
    assert figure.locator(".tip").first.inner_text().startswith("GmD\n")


def test_a_tap_shows_what_is_nearest(open_page: Open) -> None:
    page = open_page(360, has_touch=True)
    panel = page.locator(".panel").first
    panel.locator(".drawing > svg").tap(position={"x": 200, "y": 100})
    assert panel.locator(".tip").is_visible()
    assert_no_sideways_scrolling(page)


def test_arrow_keys_walk_along_and_between_lines(open_page: Open) -> None:
    page = open_page()
    panel, live = page.locator(".panel").first, page.locator("#live")
    panel.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowDown", "ArrowLeft", "Home", "ArrowUp"):
        page.keyboard.press(key)
        said.append(live.inner_text().split(":")[0])
    assert said == [
        "SGD, step 10",
        "SGD, step 20",
        "SGD, step 40",
        "GmD, step 40",
        "GmD, step 30",
        "GmD, step 10",
        "SGD, step 10",
    ]
    page.keyboard.press("Escape")
    assert not panel.locator(".tip").is_visible()


def test_everything_can_be_reached_by_keyboard_and_shows_its_focus(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.locator(".panel").first.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def colors(page: Page) -> list[str]:
    """Of the ground, of letters, of a line, of letters in a drawing."""
    return [
        page.evaluate("getComputedStyle(document.body).backgroundColor"),
        page.evaluate("getComputedStyle(document.body).color"),
        page.locator('.drawing [data-series="0"] > path').first.evaluate(
            "node => getComputedStyle(node).stroke"
        ),
        page.locator(".drawing text").first.evaluate("node => getComputedStyle(node).fill"),
    ]


def test_dark_is_dark_by_system_and_by_button(open_page: Open) -> None:
    light, dark = open_page(scheme="light"), open_page(scheme="dark")
    on_light, on_dark = colors(light), colors(dark)
    assert all(one != other for one, other in zip(on_light, on_dark, strict=True))
    light.get_by_role("button", name="Dark").click()
    dark.get_by_role("button", name="Light").click()
    assert (colors(light), colors(dark)) == (on_dark, on_light)
    light.reload()
    assert colors(light) == on_light


def test_every_figure_has_its_data_in_a_real_table(open_page: Open) -> None:
    page = open_page()
    for figure in page.locator("figure").all():
        if figure.locator(".panel").count():
            figure.get_by_text("Data", exact=True).click()
            tables = figure.locator("details table")
            assert tables.count() == figure.locator(".panel").count()
            assert tables.first.is_visible()
            assert tables.first.locator("caption").inner_text()
            assert tables.first.locator("tbody tr").count() > 0
    assert_no_sideways_scrolling(page)
    assert page.locator("th:not([scope])").count() == 0


def test_headings_are_in_order_and_landmarks_are_there(open_page: Open) -> None:
    page = open_page()
    levels = [
        int(tag[1])
        for tag in page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(node => node.tagName)"
        )
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))
    targets = page.evaluate(
        "[...document.querySelectorAll('nav a')].map(node => node.hash.slice(1))"
    )
    assert set(targets) <= set(ids)


def test_the_command_is_copied(open_page: Open) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.get_by_text("How it was made").first.click()
    button = page.get_by_role("button", name="Copy").first
    button.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "holdfast reproduce table-a"


def test_images_are_sharp_and_named(open_page: Open) -> None:
    images = open_page().locator(".pictures img")
    assert [image.get_attribute("alt") for image in images.all()] == [
        "a coat, clean",
        "a coat, noise",
    ]
    assert images.first.evaluate(
        "node => [node.naturalWidth, getComputedStyle(node).imageRendering]"
    ) == [4, "pixelated"]


def test_the_paper_s_empty_cell_has_words(open_page: Open) -> None:
    cell = open_page().locator(".accuracies small.paper").filter(has_text="empty in the paper")
    assert cell.locator('[aria-hidden="true"]').inner_text() == "—"


def test_problems_and_readings_are_shown(open_page: Open) -> None:
    page = open_page()
    problem = page.locator(".notice").inner_text()
    assert problem.endswith("is unfinished, step 20 of 40; it is left out of all means.")
    assert not page.locator(".reading p").first.is_visible()
    page.get_by_text("What the results say").click()
    assert page.locator(".reading p").all_inner_texts() == [
        "GmD stays where mean goes.",
        "A second paragraph, 5\N{NO-BREAK SPACE}% longer.",
    ]
    assert page.locator(".reading strong").inner_text() == "stays"


def test_print_shows_the_tables_without_the_controls(open_page: Open) -> None:
    page = open_page(scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.get_by_role("navigation").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".accuracies").first.is_visible()


def test_a_table_that_is_cut_says_so_until_its_end_is_in_sight(open_page: Open) -> None:
    page = open_page(320)
    places = page.locator(".scroll:visible")
    widths = places.evaluate_all("nodes => nodes.map(node => node.scrollWidth - node.clientWidth)")
    assert any(width > 1 for width in widths)
    for place, rest in zip(places.all(), widths, strict=True):
        found = place.evaluate("node => [node.className, getComputedStyle(node).maskImage]")
        assert found == (["scroll is-wide is-cut", found[1]] if rest > 1 else ["scroll", "none"])
        assert (found[1] != "none") == (rest > 1)
    wide = places.nth(next(i for i, rest in enumerate(widths) if rest > 1))
    wide.evaluate("node => node.scrollTo(node.scrollWidth, 0)")
    expect(wide).not_to_have_class(re.compile("is-cut"))


def test_every_table_that_scrolls_says_so_above_it(open_page: Open) -> None:
    page = open_page(320)
    page.evaluate("document.querySelectorAll('details').forEach(node => node.open = true)")
    # Not `wait_for_function`, which needs eval, and the page permits none.
    page.locator(".scroll.is-wide").nth(3).wait_for(state="attached")
    places = page.locator(".scroll")
    for place in places.all():
        rest, hint = place.evaluate(
            """node => [node.scrollWidth - node.clientWidth, node.previousElementSibling
              .matches('.hint') && node.previousElementSibling.checkVisibility()]"""
        )
        assert hint == (rest > 1)
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(page.locator(".scroll.is-wide")).to_have_count(0)
    assert not page.locator(".hint:visible").count()


def test_tables_of_own_runs_fit_where_the_page_has_room(browser: Browser, tmp_path: Path) -> None:
    attacked = Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=0.4, redrawn=False))
    settings: list[dict[str, Any]] = [
        {"row_size": 8, "optimizer": Sgd(lr=0.01, momentum=0.0), "n_steps": 500, "average": 0.98},
        {"row_size": 4, "optimizer": Sgd(lr=0.05, momentum=0.0), "model": "mlp"},
    ]
    listed = (0, 1, 4, 6, 9, 15, 16, 19)
    runs = []
    for rule, more in zip((RadiusFilter(), GeometricMedian()), settings, strict=True):
        for threat in (Threat(), attacked):
            one = configured(rule=rule, threat=threat, workers=Workers(), n_rows=20, **more)
            series = {**one.series, "n_bytes": (407080.0,) * 40, "n_rejected": (2.5,) * 40}
            rejected = (listed if threat.attack else (),) * 3
            rows = replace(one.rows, bad=rejected, rejected=rejected)
            runs.append(replace(one, rows=rows, series=series, suspects=rejected[0]))
    address = write_report(collection(*runs), tmp_path, ["svg"]).as_uri()
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(address)
    places = page.locator(".scroll:visible")
    assert places.filter(has_text="really bad").count() == 1
    assert places.filter(has_text="settings").count() == 1
    widths = places.evaluate_all("nodes => nodes.map(node => node.scrollWidth - node.clientWidth)")
    assert max(widths) <= 1
    # On a phone, the column with the names leaves room for the others.
    page.set_viewport_size({"width": 390, "height": 844})
    names = places.filter(has_text="really bad").locator("tbody th")
    assert max(names.evaluate_all("nodes => nodes.map(node => node.clientWidth)")) < 220
    page.close()


def test_a_method_has_one_color_in_tables_and_curves(open_page: Open) -> None:
    page = open_page()
    figure = page.locator("figure").filter(has_text="Over the steps").first
    heads = page.locator(".accuracies thead th")
    for label in ("SGD", "GmD", "BGmD"):
        key = figure.get_by_label(label, exact=True).get_attribute("data-key")
        line = figure.locator(f'.drawing [data-series="{key}"] > path').first
        swatch = heads.filter(has_text=re.compile(f"^{label}$")).locator(".swatch")
        assert swatch.evaluate("node => getComputedStyle(node).backgroundColor") == line.evaluate(
            "node => getComputedStyle(node).stroke"
        )


def test_the_first_screen_of_own_runs_has_the_verdict_and_the_table(
    browser: Browser, tmp_path: Path
) -> None:
    flip = Threat(attack=ScaledFlip(), adversaries=Adversaries(bad_fraction=0.4))
    runs = [
        configured(accuracy, rule=rule, threat=threat)
        for rule, accuracy in ((RadiusFilter(), 0.8), (Mean(), 0.1))
        for threat in (Threat(), flip)
    ]
    address = write_report(collection(*runs), tmp_path, ["svg"], title="my runs").as_uri()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    assert page.title() == page.locator("h1").inner_text() == "my runs"
    verdict = page.locator(".verdict")
    assert verdict.inner_text().startswith(
        "radius-filter kept 80.0\N{NO-BREAK SPACE}% under scaled"
    )
    bottom = page.locator(".heat").evaluate("node => node.getBoundingClientRect().bottom")
    assert bottom < 900
    cells = page.locator(".heat tbody td").evaluate_all(
        "nodes => nodes.map(node => getComputedStyle(node).backgroundColor)"
    )
    assert cells[0] == cells[1] != cells[2] == cells[3]
    page.close()
