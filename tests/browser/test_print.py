"""A page on paper: A4 and Letter, printed by Chromium; no figure and no table is cut at its right."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Chromium

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

PIXELS, MARGIN_IN = 96, 12 / 25.4
"""Of an inch, and the margin of page.css."""
PAPERS = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}


@pytest.fixture(scope="module", params=["report", "plan"])
def page(request: pytest.FixtureRequest) -> Path:
    path = request.getfixturevalue(f"{request.param}_page")
    return path if isinstance(path, Path) else path[0]


def test_no_figure_is_clipped_on_paper(browser: Chromium, page: Path) -> None:
    """Laid out as on paper: all figures and tables within its width, and a figure no higher than a page."""
    browser.open(page, 1280)
    try:
        browser.call("Emulation.setEmulatedMedia", media="print")
        for inches in PAPERS.values():
            width, height = (round(PIXELS * (side - 2 * MARGIN_IN)) for side in inches)
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                         deviceScaleFactor=1, mobile=False)  # fmt: skip
            box = "e.getBoundingClientRect()"
            reach = f"e => [e.closest('section').id, {box}.right, {box}.height]"
            drawn = browser.run(
                f"[...document.querySelectorAll('.plot .main-svg, .wide > table')].map({reach})"
            )
            assert len(drawn) > 3 and not [each for each in drawn if each[1] > width + 1]
            assert not [each for each in drawn if each[2] > height]
            assert browser.run("document.documentElement.scrollWidth") <= width
            first = browser.run("document.getElementById('first').getBoundingClientRect().height")
            assert first <= height  # the first page is one page
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    assert browser.said == []


def test_figures_are_as_they_were_after_printing(browser: Chromium, report_page: Path) -> None:
    browser.open(report_page, 1280)
    width = "document.querySelector('.main-svg').getBoundingClientRect().width"
    shown = browser.run(width)
    for paper in PAPERS:
        content = printed(browser, paper)
        assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 3
        assert len(drawing(content)) > 10_000  # of vectors, not of a blank page
        browser.wait(f"Math.abs({width} - {shown}) < 1")
    assert browser.said == []


def printed(browser: Chromium, paper: str) -> bytes:
    """The PDF."""
    wide, high = PAPERS[paper]
    asked: dict[str, Any] = {"paperWidth": wide, "paperHeight": high, "printBackground": True}
    return base64.b64decode(browser.call("Page.printToPDF", **asked)["data"])


def drawing(content: bytes) -> bytes:
    """All that its streams draw."""
    found = re.findall(rb"stream\r?\n(.*?)endstream", content, re.S)
    return b"".join(zlib.decompressobj().decompress(each) for each in found if each[:1] == b"x")
