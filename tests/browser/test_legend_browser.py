"""The legend of a figure in a real browser: names as they are written in files, hatches as bars have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Chromium

from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.words import safe
from perfmodel.report.page.assemble import block_data, whole_page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")
NAMES = ("<script>alert(1)</script>", "R&D &lt; 2")


def test_names_of_a_legend_stay_text(browser: Chromium, tmp_path: Path) -> None:
    figure = style.new_figure()
    for name in NAMES:
        figure.add_bar(x=[1], y=[1], name=safe(name), showlegend=True)
    browser.open(written(figure, tmp_path), 1280)
    found = browser.run("[...document.querySelectorAll('.legend button')].map(b => b.lastChild.textContent)")
    assert found == list(NAMES)
    assert browser.said == []


def written(figure: Any, folder: Path) -> Path:
    """A page of this figure alone."""
    block = Block("bars", "Two bars.", "How.", figure, "Made up.", ({"x": 1},))
    head = {"sentence": "S.", "times": "", "sure": "", "gpus": "", "evidence": [], "alert": "", "notes": []}
    view = {"heads": [head], "blocks": [block_data(block)], "titles": {}}
    shown = {"selectors": [], "views": {"": view}, "fixed": [], "question": "", "alerts": [], "command": ""}
    page = folder / "page.html"
    page.write_text(whole_page("Two bars", "", shown), encoding="utf-8")
    return page
