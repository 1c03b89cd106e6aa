"""The page in a real browser without a network: every choice, numbers under the mouse, a clean console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium

from perfmodel.answer import project_one
from perfmodel.answer.ranking import rank_shardings
from perfmodel.report.ranking_text import headline
from perfmodel.units import format_ratio

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

LINES = "document.querySelector('#block-slowdown .plot').data"


def part(size: float, name: str = "NCCL row-wise") -> str:
    """The part of a line, of which there is one an evidence, that is drawn at that table size."""
    return f"{LINES}.find(t => t.name === '{name}' && t.hoverinfo !== 'skip' && [...t.x].includes({size}))"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_clean_at_every_width(
    browser: Chromium, report_page: Path, width: int, dark: bool
) -> None:
    browser.open(report_page, width, dark=dark)
    browser.run("dispatchEvent(new Event('beforeprint'))")  # draws what is far below, too
    browser.wait("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.said == []
    assert browser.left_for() == {report_page.resolve().as_uri()}
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
    titles = browser.run(
        "[...document.querySelectorAll('section:not(#headline) h2')].map(each => each.textContent)"
    )
    drawn = browser.run("document.querySelectorAll('.plot:has(.main-svg)').length")
    hints = browser.run("[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
    assert "Zoom" in hints and not [hint for hint in hints if "hare" in hint or "loud" in hint]
    assert len(titles) == drawn + 1 > 10 and all(titles)  # the sources have a title and no figure


def test_every_choice_shows_the_numbers_of_python(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    assert "144 GPUs" in browser.run("document.querySelector('h1').textContent")
    for size_at, size in enumerate((1e12, 10e12)):
        for batch_at, batch in enumerate((256, 1024)):
            browser.choose("table-bytes", size_at)
            browser.choose("batch", batch_at)
            answer = project_one(table_bytes=size, batch=batch)
            words = headline(rank_shardings(answer))
            browser.wait(f"document.querySelector('h1').textContent === {json.dumps(words)}")
            line = part(size)
            browser.wait(f"Math.abs({line}.y[{line}.x.indexOf({size})] / {answer.slowdown} - 1) < 1e-5")
    assert browser.said == []


SETTINGS = (
    ("backend", 1, {"backend": "nvshmem", "clock": "stream"}),
    ("clock", 1, {"clock": "graph"}),
    ("sharding", 2, {"reduction": "sparse"}),
    ("machine", 1, {"machine": "h200-sxm-ib"}),
)


def test_every_setting_shows_the_numbers_of_python(browser: Chromium, report_page: Path) -> None:
    """Each by itself: it goes back before the next."""
    browser.open(report_page, 1280)
    for name, at, options in SETTINGS:
        before = int(browser.run(f"document.getElementById('select-{name}').value"))
        browser.choose(name, at)
        answer = project_one(table_bytes=10e12, **options)
        slower = f"{format_ratio(answer.slowdown)} slower"
        words = slower if name == "sharding" else headline(rank_shardings(answer))
        browser.wait(f"document.querySelector('h1').textContent.startsWith({json.dumps(words)})")
        first = part(1e13, browser.run(f"{LINES}.find(t => t.showlegend).name"))
        browser.wait(f"Math.abs({first}.y[{first}.x.indexOf(1e13)] / {answer.slowdown} - 1) < 1e-5")
        assert browser.run("document.getElementById('choice').textContent") == ""
        browser.choose(name, before)
    assert browser.said == []


def test_a_combination_that_is_not_there_is_no_dead_end(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    places = "[...document.querySelectorAll('#selectors select')].map(s => Number(s.value)).join('')"
    line = "document.getElementById('choice')"
    asked = browser.run(places)
    browser.choose("batch", 0)
    browser.choose("machine", 1)  # with another batch it is not in the page: the batch goes back
    browser.wait(f"{line}.textContent.includes('Not in this page: machine h200-sxm-ib, batch 256.')")
    assert browser.run(places) == asked[:4] + "1" + asked[5:]
    words = "perfmodel report --table-size 10TB --batch 256 --pooling 32 --dim 32 --machine h200-sxm-ib"
    command = browser.run(f"{line}.querySelector('code').textContent")
    assert command == f"{words} --backend nccl --clock stream"
    browser.choose("machine", 0)
    browser.choose("clock", 2)
    assert browser.run(f"{line}.textContent") == ""
    browser.choose("backend", 1)  # nobody measured NVSHMEM so: it is shown at the clock of the question
    browser.wait(f"{line}.textContent.startsWith('Nothing of any evidence class for nvshmem at clock eager')")
    assert browser.run(places)[5:] == "100" and browser.said == []


def test_the_mouse_reads_the_number_of_the_projection(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    answer = project_one(table_bytes=10e12)
    low, high = (format_ratio(value) for value in answer.band)
    text = browser.run(
        f"""(async () => {{
            const plot = document.querySelector('#block-slowdown .plot'), line = {part(1e13)};
            const point = {{curveNumber: plot.data.indexOf(line), pointNumber: line.x.indexOf(1e13)}};
            Plotly.Fx.hover(plot, [point]);
            await new Promise(done => setTimeout(done, 200));
            return [...plot.querySelectorAll('.hovertext text')].map(each => each.textContent).join(' ');
        }})()"""
    )
    for words in (
        "NCCL row-wise",
        "10 TB on 144 GPUs",
        f"{format_ratio(answer.slowdown)}, band {low} – {high}",
    ):
        assert words in text, text
    assert f"evidence: {answer.main_evidence}; in part {answer.evidence}" in text


def test_switches_legend_and_table(browser: Chromium, report_page: Path) -> None:
    browser.show(report_page, 1280)
    buttons = "[...document.querySelectorAll('#block-{block} button')]"
    press = buttons + ".find(b => b.textContent === '{words}').click()"
    axis = "document.querySelector('#block-{block} .plot').layout.yaxis.{key}"
    assert browser.run(axis.format(block="slowdown", key="type")) == "log"
    browser.run(press.format(block="slowdown", words="linear"))
    browser.wait(axis.format(block="slowdown", key="type") + " !== 'log'")
    browser.run(press.format(block="breakdown", words="ms"))
    browser.wait(axis.format(block="breakdown", key="title.text") + " === 'time of a batch (ms)'")
    browser.run(press.format(block="breakdown", words="gather + pool"))
    seen = "document.querySelector('#block-breakdown .plot').data.filter(t => t.visible !== false).length"
    browser.wait(f"{seen} === 1")
    browser.run(press.format(block="breakdown", words="gather + pool"))
    browser.wait(f"{seen} > 1")
    map_words = "document.querySelector('#block-heat-map {part}').{words}"
    browser.run(press.format(block="heat-map", words="tables × dim"))  # each picture has its own sentence
    assert "(tables 1, dim" in browser.run(map_words.format(part="h2", words="textContent"))
    assert "(tables 1, dim" in browser.run(map_words.format(part=".plot", words="ariaLabel"))
    browser.run("document.querySelector('#block-slowdown details').open = true")
    browser.wait("document.querySelectorAll('#block-slowdown tbody tr').length > 50")
    assert browser.said == []


def test_curves_of_another_number_of_gpus_are_chosen_in_their_block(
    browser: Chromium, report_page: Path
) -> None:
    browser.show(report_page, 1280)
    block = "document.getElementById('block-libraries')"
    title, rows = (f"{block}.querySelector('{part}').textContent" for part in ("h2", "summary"))
    before = browser.run(title), browser.run(rows)
    assert "on 8 GPUs" in before[0]
    change = "list => { list.value = 1; list.dispatchEvent(new Event('change')); }"
    browser.run(f"({change})({block}.querySelector('select'))")
    browser.wait(f"{title}.includes('on 2 GPUs') && {block}.querySelector('.main-svg')")
    assert browser.run(rows) != before[1]
    browser.choose("batch", 0)  # what is chosen above does not change it back
    assert "on 2 GPUs" in browser.run(title) and browser.said == []
    other = "document.querySelector('#block-collectives-all-to-all h2').textContent"
    assert "on 8 GPUs" in browser.run(other)


def test_everything_is_reached_by_keyboard(browser: Chromium, report_page: Path) -> None:
    browser.show(report_page, 1280)
    lonely = (
        "[...document.querySelectorAll('select')]"
        ".filter(s => !s.closest('label') && !s.getAttribute('aria-label')).length"
    )
    assert browser.run(lonely) == 0
    assert browser.run("[...document.querySelectorAll('.plot')].every(p => p.getAttribute('aria-label'))")
    assert browser.run(
        "[...document.querySelectorAll('select:enabled, button')].every(b => b.tabIndex === 0)"
    )


def test_what_is_wider_than_a_phone_scrolls_by_keyboard(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 390)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.wait("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    browser.run("document.querySelector('#provenance details').open = true")
    too_wide = "w => w.scrollWidth > w.clientWidth && !w.closest('details:not([open])')"
    wide = f"[...document.querySelectorAll('.wide')].filter({too_wide})"
    assert browser.run(f"{wide}.length") >= 3
    browser.wait(f"{wide}.every(w => w.tabIndex === 0 && w.getAttribute('aria-label'))")


def test_far_figures_are_drawn_when_one_comes_near(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    place = "document.querySelector('#block-shardings .plot')"
    assert not browser.run(f"Boolean({place}.querySelector('.main-svg'))")
    browser.run(f"{place}.scrollIntoView()")
    browser.wait(f"Boolean({place}.querySelector('.main-svg'))")


def test_a_dark_page_on_request(browser: Chromium, report_page: Path) -> None:
    browser.show(report_page, 1280)
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
