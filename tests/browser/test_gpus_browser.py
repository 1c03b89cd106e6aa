"""The page over numbers of GPUs in a real browser without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium

from perfmodel.cli import run
from perfmodel.plan.leading import leading
from perfmodel.projections import project_one
from perfmodel.report.leading_text import headline
from perfmodel.units import format_ratio, format_time

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

MODEL = "mlperf-dlrm-dcnv2"
WORDS = ("--gpus", "8,64", "--batch", "1024", "--machine", "h100-sxm-ib", "--backend", "nccl")
WAYS = ("--clock", "stream", "--reduction", "auto,sparse")
PLOT = "document.querySelector('#block-over-gpus .plot')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "gpus.html"
    assert run(["report", "--model", MODEL, *WORDS, *WAYS, "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_clean(browser: Chromium, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.wait("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    assert browser.run("document.documentElement.scrollWidth") == width and browser.said == []
    assert browser.left_for() == {page.resolve().as_uri()}
    names = browser.run("[...document.querySelectorAll('section')].map(each => each.id)")
    assert names == ["headline", "block-over-gpus", "provenance"]


def test_every_number_of_gpus_has_the_numbers_of_python(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280)
    title = "document.querySelector('#block-over-gpus h2').textContent"
    last = "document.querySelector('#headline .wide:last-of-type').querySelectorAll('tbody tr')"
    rows = f"[...{last}].map(row => row.innerText.split('\\t'))"
    for way_at, way in enumerate(("auto", "sparse")):
        for at, gpus in enumerate((8, 64)):
            browser.choose("gpus", at)
            browser.choose("reduction", way_at)
            answer = project_one(tables=MODEL, gpus=gpus, reduction=way)
            words = f"{format_ratio(answer.slowdown)} slower sharded row-wise over {gpus} GPUs"
            if way == "auto":
                lead = leading(answer)
                answer, words = lead.answer, headline(lead)
            browser.wait(f"document.querySelector('h1').textContent.startsWith({json.dumps(words)})")
            said = f"On {gpus} GPUs a batch takes {format_time(answer.time_s)}, "
            browser.wait(f"{title}.startsWith({json.dumps(said)})")
            assert browser.run(rows)[at][:2] == [str(gpus), format_time(answer.time_s)]
    assert browser.said == []


def test_switches_and_mouse_read_time_and_samples(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280)
    answer = project_one(tables=MODEL, gpus=64)
    here = "t.name === 'NCCL row-wise' && t.hoverinfo !== 'skip' && [...t.x].includes(64)"
    line = f"{PLOT}.data.find(t => {here})"  # a line is drawn in parts, one an evidence
    wanted = {"time": answer.time_s, "samples/s": 64 * 1024 / answer.time_s, "slowdown": answer.slowdown}
    for label, value in wanted.items():
        browser.run(
            "[...document.querySelectorAll('#block-over-gpus button')]"
            f".find(b => b.textContent === '{label}').click()"
        )
        browser.wait(f"Math.abs({line}.y[{line}.x.indexOf(64)] / {value!r} - 1) < 1e-4")
    text = browser.run(
        f"""(async () => {{
            const plot = {PLOT}, line = {line};
            const point = {{curveNumber: plot.data.indexOf(line), pointNumber: line.x.indexOf(64)}};
            Plotly.Fx.hover(plot, [point]);
            await new Promise(done => setTimeout(done, 200));
            return [...plot.querySelectorAll('.hovertext text')].map(each => each.textContent).join(' ');
        }})()"""
    )
    ratio = format_ratio(answer.slowdown)
    for words in ("NCCL row-wise", "64 GPUs, tables of 105 GB", ratio, "samples per second"):
        assert words in text, text
