"""The page in a real browser without a network: figures, numbers under the mouse, a clean console."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium

from perfmodel.answer import project_one
from perfmodel.report.figures.chart import Block, escape_text, new_figure
from perfmodel.report.page.assemble import Card, Page, render_page
from perfmodel.units import format_ratio

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

NAMES = ("<script>alert(1)</script>", "R&D &lt; 2")
LINES = "document.querySelector('#block-slowdown .plot').data"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_clean_at_every_width(
    browser: Chromium, report_page: Path, width: int, dark: bool
) -> None:
    browser.open(report_page, width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.said == []
    assert browser.left_for() == {report_page.resolve().as_uri()}
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    titles = browser.run("[...document.querySelectorAll('section h2')].map(each => each.textContent)")
    drawn = browser.run("document.querySelectorAll('.plot:has(.main-svg)').length")
    hints = browser.run("[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
    assert "Zoom" in hints and not [hint for hint in hints if "hare" in hint or "loud" in hint]
    assert "Download plot as a PNG" in hints
    assert len(titles) == drawn + 1 > 10 and all(titles)  # the sources have a title and no figure
    words = browser.run(
        "[...document.querySelectorAll('#block-slowdown text')].map(t => getComputedStyle(t).fill)"
    )
    assert set(words) == {"rgb(232, 235, 239)" if dark else "rgb(29, 35, 43)"}


def test_two_figures_are_side_by_side_on_the_first_screen(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    place = "document.getElementById('block-{}').getBoundingClientRect()"
    steps, slowdown = (place.format(name) for name in ("breakdown", "slowdown"))
    assert browser.run(f"{steps}.top === {slowdown}.top && {steps}.right < {slowdown}.left")
    assert browser.run(f"{slowdown}.bottom") <= 900
    browser.open(report_page, 390)
    assert browser.run(f"{steps}.bottom <= {slowdown}.top")


def test_the_mouse_reads_the_number_of_the_projection(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    answer = project_one(table_bytes=10e12)
    low, high = (format_ratio(value) for value in answer.band)
    text = browser.run(
        f"""(async () => {{
            const plot = document.querySelector('#block-slowdown .plot');
            const first = {LINES}.filter(t => t.name === "TorchRec's fastest" && !t.fill);
            const line = first.find(t => [...t.x].includes(1e13)), at = plot.data.indexOf(line);
            Plotly.Fx.hover(plot, [{{curveNumber: at, pointNumber: line.x.indexOf(1e13)}}]);
            await new Promise(done => setTimeout(done, 200));
            return [...plot.querySelectorAll('.hovertext text')].map(each => each.textContent).join(' ');
        }})()"""
    )
    for words in ("10 TB on 144 GPUs, row-wise", f"{format_ratio(answer.slowdown)}, band {low} – {high}"):
        assert words in text, text
    assert f"evidence: {answer.main_evidence}; in part {answer.evidence}" in text


def test_numbers_are_saved_as_csv(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    text = browser.run(
        """(async () => {
            let blob;
            URL.createObjectURL = (given) => { blob = given; return "data:,"; };
            document.querySelector("#block-breakdown .csv").click();
            return blob.text();
        })()"""
    )
    head, *rows = text.strip().split("\n")
    assert head.startswith("sharding,step,time_s,low_s,high_s,share,")
    steps = project_one(table_bytes=10e12).steps
    cells = [row.split(",") for row in rows]
    assert [(cell[1], float(cell[2])) for cell in cells] == [(step.name, step.time_s) for step in steps]


def test_everything_is_reached_by_keyboard(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 390)
    assert browser.run("[...document.querySelectorAll('.plot')].every(p => p.getAttribute('aria-label'))")
    assert browser.run("[...document.querySelectorAll('button')].every(b => b.tabIndex === 0)")
    too_wide = "w => w.scrollWidth > w.clientWidth && !w.closest('details')"
    wide = f"[...document.querySelectorAll('.wide')].filter({too_wide})"
    assert browser.run(f"{wide}.every(w => w.tabIndex === 0)")


def test_a_dark_page_on_request(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    words = "document.getElementById('theme').textContent"
    assert browser.run(words) == "Dark"
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert browser.run(words) == "Light"  # what it does next


def test_a_browser_that_cannot_inflate_gets_a_sentence(browser: Chromium, report_page: Path) -> None:
    old = browser.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    try:
        browser.call("Page.navigate", url="about:blank")
        browser.call("Page.navigate", url=report_page.resolve().as_uri())
        browser.wait("document.querySelector('#alerts')?.textContent.includes('too old for the figures')")
        assert "a batch" in browser.run("document.querySelector('h1').textContent")
        assert browser.said == []
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=old["identifier"])


def test_names_of_a_legend_stay_text(browser: Chromium, tmp_path: Path) -> None:
    bars = [{"type": "bar", "x": [1], "y": [1], "name": escape_text(x), "showlegend": True} for x in NAMES]
    figure = new_figure(bars)
    block = Block("bars", "Two bars.", "How.", figure, "Made up.", ({"x": 1},))
    page = tmp_path / "page.html"
    page.write_text(render_page(Page("Two bars", Card("S."), (block,))), encoding="utf-8")
    browser.open(page, 1280)
    found = browser.run("[...document.querySelectorAll('.legendtext')].map(each => each.textContent)")
    assert found == list(NAMES)
    assert browser.said == []
