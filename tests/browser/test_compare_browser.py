"""The page of two in a real browser without a network: every choice, names that stay text, clean console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium

from perfmodel import resources
from perfmodel.cli import run
from perfmodel.projections import project_one
from perfmodel.report.figures.compare import Pair
from perfmodel.report.page.comparison_card import finding
from perfmodel.schema.calibration import shipped_calibration
from perfmodel.units import format_ratio, format_time

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")

A, B = "h200-sxm-ib/nccl-2.29.2-stream", "h200-sxm-ib/nvshmem-3.3.9-stream"
WORDS = ("--table-size", "10TB,1TB", "--batch", "1024,256", "--pooling", "32", "--dim", "32")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "compare.html"
    assert run(["report", "--compare", A, B, *WORDS, "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_opens_clean_at_every_width(browser: Chromium, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    browser.run("dispatchEvent(new Event('beforeprint'))")  # draws what is far below, too
    browser.wait("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert browser.said == []
    assert browser.left_for() == {page.resolve().as_uri()}
    assert browser.run("document.body.innerText.includes('undefined')") is False
    assert browser.run("document.querySelectorAll('.plot:has(.main-svg)').length") == 2


def test_every_choice_shows_the_finding_of_python(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280)
    for size_at, size in enumerate((1e12, 10e12)):
        for batch_at, batch in enumerate((256, 1024)):
            browser.choose("table-bytes", size_at)
            browser.choose("batch", batch_at)
            a, b = (
                project_one(
                    table_bytes=size, batch=batch, machine="h200-sxm-ib", backend=backend, calibration=name
                )
                for backend, name in (("nccl", A), ("nvshmem", B))
            )
            said = finding(Pair(a, b, A, B))
            browser.wait(f"document.querySelector('h1').textContent === {json.dumps(said)}")
            words = "For 1 TB " if size == 1e12 else "For 10 TB "
            title = "document.querySelector('#block-compare-steps h2').textContent"
            browser.wait(f"{title}.startsWith({json.dumps(words)})")
            last = "document.querySelector('#headline tbody tr:last-child').innerText.split('\\t')"
            assert browser.run(last)[:3] == ["whole batch", format_time(a.time_s), format_time(b.time_s)]
    assert browser.said == []


def test_the_mouse_reads_the_ratio(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280)
    words = browser.run(
        """(async () => {
            const plot = document.querySelector('#block-compare-time .plot');
            const at = plot.data.findIndex(t => t.yaxis === 'y2');
            const point = plot.data[at].x.indexOf(1e13);
            Plotly.Fx.hover(plot, [{curveNumber: at, pointNumber: point}], ['xy2']);
            await new Promise(done => setTimeout(done, 200));
            return [...plot.querySelectorAll('.hovertext text')].map(each => each.textContent).join(' ');
        })()"""
    )
    a = project_one(table_bytes=10e12, machine="h200-sxm-ib", calibration=A)
    b = project_one(table_bytes=10e12, machine="h200-sxm-ib", calibration=B, backend="nvshmem")
    ratio = f"A over B {format_ratio(a.time_s / b.time_s)}"
    times = f"{format_time(a.time_s)} and {format_time(b.time_s)}"
    for part in ("10 TB", ratio, times, "cannot say"):  # the bands of the two overlap
        assert part in words, words


def test_names_from_files_stay_text(browser: Chromium, tmp_path: Path) -> None:
    """A file may be called anything, and the page shows what was typed to tell two of one name apart."""
    bad, good = tmp_path / "<img src=x onerror=alert(1)>.toml", tmp_path / "good.toml"
    text = resources.data_path("machines", "h200-sxm-ib.toml").read_text()
    bad.write_text(text)
    good.write_text(text)
    words = ("--table-size", "10TB", "--batch", "1024", "--pooling", "32", "--dim", "32")
    out = tmp_path / "page.html"
    assert run(["report", "--compare", str(bad), str(good), *words, "--out", str(out)]) == 0
    browser.said.clear()
    browser.open(out, 1280)
    assert browser.run("document.querySelectorAll('img').length") == 0
    for place in ("headline", "provenance"):
        assert bad.name in browser.run(f"document.getElementById('{place}').textContent")
    legend = browser.run("document.querySelector('#block-compare-time .legend').textContent")
    assert bad.name in legend, legend
    assert browser.said == []


def test_alerts_take_no_text_for_html(browser: Chromium, tmp_path: Path) -> None:
    """The id of a calibration, and what a run says of it, come from files that anybody may have written."""
    bad = "<img src=x onerror=alert(1)>"
    path = tmp_path / "mine.json"
    content = json.loads(shipped_calibration(A).to_json())
    content |= {"calibration_id": f"h200-sxm-ib/{bad}", "complete": False, "checked": False}
    path.write_text(json.dumps(content))
    words = ("--table-size", "10TB", "--batch", "1024", "--pooling", "32", "--dim", "32")
    for name, line in (("report", ("--calibration", str(path))), ("two", ("--compare", str(path), B))):
        out = tmp_path / f"{name}.html"
        assert run(["report", *line, *words, "--out", str(out)]) == 0
        browser.said.clear()
        browser.open(out, 390)
        alerts = browser.run("[...document.querySelectorAll('#alerts .alert')].map(a => a.textContent)")
        assert any("is incomplete" in text and bad in text for text in alerts), alerts
        assert any("were not checked" in text and bad in text for text in alerts), alerts
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert browser.run("document.documentElement.scrollWidth") == 390
        assert browser.said == []
