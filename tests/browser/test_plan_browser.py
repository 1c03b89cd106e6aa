"""The page of a plan in a real browser: drawn, clean, and the mouse reads what --json says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chromium import BAD, PROGRAM, Chromium

from perfmodel.units import format_time

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
    assert "Evidence: " in browser.run("document.querySelector('#first').textContent")
    assert browser.run("document.body.innerText.includes('undefined')") is False
    assert browser.said == []
    assert browser.left_for() == {path.resolve().as_uri()}


def test_the_mouse_reads_what_a_gpu_does_and_holds(
    browser: Chromium, plan_page: tuple[Path, dict[str, Any]]
) -> None:
    path, told = plan_page
    browser.open(path, 1280)
    words = browser.run(
        """(async () => {
            const plot = document.querySelector('#block-placements .plot');
            const shown = [];
            for (const [curve, trace] of plot.data.entries()) {
                Plotly.Fx.hover(plot, [{curveNumber: curve, pointNumber: 0}], ['x' + trace.yaxis]);
                await new Promise(done => setTimeout(done, 200));
                shown.push([...plot.querySelectorAll('.hovertext text')].map(t => t.textContent).join(' '));
            }
            return shown.join(' ');
        })()"""
    )
    longest = max(told["steps"], key=lambda step: float(step["time_s"]))
    assert longest["label"] in words and "exchange buffers on rank 0" in words
    assert {group["sharding"] for group in told["groups"] if f"{group['sharding']} on rank" in words}
    assert BAD in words  # the name of a table


def test_names_from_files_stay_text(browser: Chromium, plan_page: tuple[Path, dict[str, Any]]) -> None:
    """Nothing of the page is an image, nothing ran, and the name is there to read."""
    browser.open(plan_page[0], 1280)
    assert browser.run("document.querySelectorAll('img, image').length") == 0
    assert BAD in browser.run("document.body.textContent")
    assert browser.said == []
