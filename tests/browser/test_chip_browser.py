"""The page of a mapping to cores in a real browser: drawn, clean, and the mouse reads what --json says."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Chromium

from perfmodel.cli import run
from perfmodel.units import format_bytes, format_ratio, format_time

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path, out = tmp_path_factory.mktemp("page") / "chip.html", io.StringIO()
    words = ["--chip", "ascend-910", "--model", "criteo-kaggle", "--batch", "512"]
    with contextlib.redirect_stdout(out):
        code = run(["chip", "plan", *words, "--distribution", "zipf:1.05", "--report", str(path), "--json"])
    assert code == 0
    return path, json.loads(out.getvalue())


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_clean(
    browser: Chromium, made: tuple[Path, dict[str, Any]], width: int, dark: bool
) -> None:
    path, told = made
    browser.open(path, width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.run("document.querySelectorAll('.plot .main-svg').length") > 0
    assert format_ratio(told["speedup"]) in browser.run("document.querySelector('h1').textContent")
    assert browser.run("document.body.innerText.includes('undefined')") is False
    assert browser.said == []
    assert browser.left_for() == {path.resolve().as_uri()}


def test_the_mouse_reads_a_block(browser: Chromium, made: tuple[Path, dict[str, Any]]) -> None:
    path, told = made
    browser.open(path, 1280)
    names = {block["table"] for column in told["after"] for block in column["blocks"]}
    text = browser.run(
        """(async () => {
            const plot = document.querySelector('#block-cores .plot');
            const at = plot.data.findIndex(t => t.xaxis === 'x2');
            Plotly.Fx.hover(plot, [{curveNumber: at, pointNumber: 0}], ['x2y2']);
            await new Promise(done => setTimeout(done, 200));
            const shown = [...plot.querySelectorAll('.hovertext text')];
            return [plot.data[at].name, plot.data[at].x[0], shown.map(each => each.textContent).join(' ')];
        })()"""
    )
    table, core, words = text
    assert table in names
    blocks = [b for b in told["after"][core]["blocks"] if b["table"] == table]
    assert any(
        f"way {b['way']}" in words
        and format_time(b["time_s"]) in words
        and f"{format_bytes(b['held_bytes'])} kept" in words
        for b in blocks
    ), (words, blocks)


def test_a_phone_shows_both_halves_whole_the_answer_first(
    browser: Chromium, made: tuple[Path, dict[str, Any]]
) -> None:
    browser.open(made[0], 390)
    (above, left), (below, same) = browser.run(
        """['x2y2', 'xy'].map(half => {
            const area = document.querySelector(`#block-cores .nsewdrag[data-subplot="${half}"]`);
            const box = area.getBoundingClientRect();
            return [box.bottom, [box.left, box.right]];
        })"""
    )
    assert above < below and left == pytest.approx(same, abs=12) and 0 < min(left) < max(left) < 390


def test_a_box_that_scrolls_says_so(browser: Chromium, tmp_path: Path) -> None:
    """A figure of 64 cores is wider than a phone."""
    path = tmp_path / "wide.html"
    words = ["--chip", "ascend-910", "--set", "cores=64", "--model", "criteo-kaggle", "--effort", "quick"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["chip", "plan", *words, "--report", str(path)]) == 0
    said = "getComputedStyle(document.querySelector('#block-cores .wide'), '::before').content"
    browser.open(path, 390)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.wait(f"{said}.includes('scroll sideways')")
    browser.open(path, 1280)
    assert browser.run(said) == "none"


def test_blocks_of_a_core_do_not_cover_its_neighbours(
    browser: Chromium, made: tuple[Path, dict[str, Any]]
) -> None:
    browser.open(made[0], 1280)
    widths = browser.run(
        "[...document.querySelectorAll('#block-cores .plot .bars path')].map(p => p.getBBox().width)"
    )
    assert max(widths) < 1.1 * min(width for width in widths if width > 0) < 20
