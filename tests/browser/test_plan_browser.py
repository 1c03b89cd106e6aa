"""The page of a plan in a real browser: drawn, clean, and the mouse reads what --json says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chromium import BAD, PROGRAM, Chromium

from perfmodel.units import format_bytes, format_time

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_clean(
    browser: Chromium, plan_page: tuple[Path, dict[str, Any]], width: int, dark: bool
) -> None:
    path, told = plan_page
    browser.open(path, width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.run("document.querySelectorAll('.plot:has(.main-svg)').length") == 2
    assert format_time(told["time_s"]) in browser.run("document.querySelector('h1').textContent")
    assert browser.run("document.querySelectorAll('.evidence span').length") > 0
    assert browser.run("document.body.innerText.includes('undefined')") is False
    assert browser.said == []
    assert browser.left_for() == {path.resolve().as_uri()}


def test_the_mouse_reads_a_block(browser: Chromium, plan_page: tuple[Path, dict[str, Any]]) -> None:
    path, told = plan_page
    browser.open(path, 1280)
    words = browser.run(
        """(async () => {
            const plot = document.querySelector('#block-placements .plot');
            const shown = [];
            for (const [curve, trace] of plot.data.entries()) {
                Plotly.Fx.hover(plot, [{curveNumber: curve, pointNumber: 0}]);
                await new Promise(done => setTimeout(done, 200));
                shown.push([...plot.querySelectorAll('.hovertext text')].map(t => t.textContent).join(' '));
            }
            return shown.join(' ');
        })()"""
    )
    sharded = {name: group for group in told["groups"] for name in group["tables"]}
    seen = [name for name in sharded if f"{name}, {sharded[name]['sharding']} on rank" in words]
    assert seen and "for its own samples" in words
    assert any(format_bytes(sharded[name]["memory_bytes"], binary=False) in words for name in seen)


def test_bytes_and_time_are_two_views_of_the_same_blocks(
    browser: Chromium, plan_page: tuple[Path, dict[str, Any]]
) -> None:
    path, told = plan_page
    browser.open(path, 1280)
    press = (
        "[...document.querySelectorAll('#block-placements .updatemenu-button')]"
        ".find(b => b.textContent === '{}').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
    )
    tops = """(() => {
        const plot = document.querySelector('#block-placements .plot'), top = {};
        for (const trace of plot.data) trace.x.forEach((x, at) => {
            top[x] = Math.max(top[x] || 0, trace.base[at] + trace.y[at]); });
        return [plot.layout.yaxis.title.text, Object.values(top)];
    })()"""
    title, heights = browser.run(tops)
    unit = {"ms": 1e-3, "µs": 1e-6}[title.split("(")[-1].rstrip(")")]
    assert max(heights) * unit <= told["time_s"] * (1 + 1e-4)
    browser.run(press.format("memory"))
    browser.wait(
        "document.querySelector('#block-placements .plot').layout.yaxis.title.text.startsWith('bytes that')"
    )
    title, heights = browser.run(tops)
    unit = {"GB": 1e9, "MB": 1e6}[title.split("(")[-1].rstrip(")")]
    assert [unit * height for height in heights] == pytest.approx(told["memory_bytes"], rel=1e-4)
    assert browser.said == []


def test_names_from_files_stay_text(browser: Chromium, plan_page: tuple[Path, dict[str, Any]]) -> None:
    """Nothing of the page is an image, nothing ran, and the name is there to read."""
    browser.open(plan_page[0], 1280)
    assert browser.run("document.querySelectorAll('img, image').length") == 0
    assert BAD in browser.run("document.body.textContent")
    assert browser.said == []
