"""Names in files of tables, plans and dense layers stay text on every page that shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium

from perfmodel import resources
from perfmodel.cli import run

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine: apt install chromium")
BAD = "<img src=x onerror=alert(1)>"
TABLES = f"name,rows,dim,pooling\n{BAD}0,20000,32,8\n{BAD}1,20000,32,8\n"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / f"{BAD}.csv"
    path.write_text(TABLES)
    return path


def stays_text(browser: Chromium, page: Path) -> None:
    """Nothing of the page is an image, nothing ran, and the name is there to read."""
    browser.said.clear()
    browser.open(page, 1280)
    browser.run("dispatchEvent(new Event('beforeprint'))")  # draws what is far below, too
    browser.wait("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
    assert browser.run("document.querySelectorAll('img, image').length") == 0
    assert BAD in browser.run("document.body.textContent")
    assert browser.said == []


def test_a_plan_with_dense_layers(browser: Chromium, tables: Path, tmp_path: Path) -> None:
    text = resources.data_path("dense", "dlrm-dcnv2.toml").read_text()
    dense = tmp_path / f"{BAD}.toml"
    dense.write_text(re.sub(r'^name = ".*"', f'name = "{BAD}"', text, count=1, flags=re.MULTILINE))
    page = tmp_path / "plan.html"
    words = ("--model", str(tables), "--gpus", "2", "--dense", str(dense), "--report", str(page))
    assert run(["plan", *words]) == 0
    stays_text(browser, page)
