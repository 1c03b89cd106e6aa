"""The page: whole, the same twice, small enough, asks nobody for anything, and takes no text for HTML."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Outcome, is_an_error
from oracles import own_run
from plotly.offline import get_plotlyjs

from perfmodel.answer import project_one
from perfmodel.cli import run
from perfmodel.report.figures.chart import Block, Missing, new_figure
from perfmodel.report.page import assemble
from perfmodel.report.page.assemble import Card, Page, build_data, escape_script, render_block
from perfmodel.report.page.question_page import FIGURES
from perfmodel.schema.calibration import read_calibration

WORDS = ("report", "--table-size", "10TB")
LARGEST = 5_300_000
SCRIPT = Path(assemble.__file__).with_name("page.js")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert run([*WORDS, "--out", str(path)]) == 0
    return path


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def sections(path: Path) -> list[str]:
    return re.findall(r"<section id='block-([\w-]+)'>", path.read_text())


def test_the_first_screen_is_the_headline_two_figures_and_what_would_help(page: Path) -> None:
    text = page.read_text()
    first = text[text.index("<section id='first'>") : text.index("<section id='block-shardings'>")]
    assert re.findall(r"<section id='block-(\w+)'>", first) == ["breakdown", "slowdown", "changes"]
    pair = first[first.index("<div class='pair'>") : first.index("<ul class='findings'>")]
    assert "block-slowdown" in pair and "block-changes" not in pair
    assert first.count("<li>") == 3  # findings
    answer = project_one(table_bytes=10e12)
    words = unescape(first)
    assert f"10 TB on 144 GPUs (18 nodes of h100-sxm-ib): {answer.time_s * 1e3:.2f} ms a batch" in words
    assert f"{answer.slowdown:.0f}×" in words and f"{answer.totals['throughput_ratio']:.3f}×" in words


def test_every_section_has_its_figure_and_its_numbers(page: Path) -> None:
    blocks = content(page)["blocks"]
    assert [block["name"] for block in blocks] == sections(page) and 10 <= len(blocks) <= 14
    for block in blocks:
        assert block["rows"] and len(block["rows"][0]) == len(block["columns"]), block["name"]
        assert all(trace.get("name") or trace["type"] == "heatmap" for trace in block["figure"]["data"])


def test_the_page_is_one_file_that_asks_for_nothing(page: Path) -> None:
    text = page.read_text()
    assert len(text.encode()) <= LARGEST
    assert not re.search(r'<(?:script|link|img)[^>]*\b(?:src|href)="(?!data:)', text)
    assert "default-src 'none'" in text and "@@" not in text.split("<script>")[0]
    assert len(SCRIPT.read_text().splitlines()) <= 120


def test_plotly_is_packed_and_whole(page: Path) -> None:
    found = re.search(r'id="plotly">([^<]*)</script>', page.read_text())
    assert found and gzip.decompress(base64.b64decode(found[1])).decode() == get_plotlyjs()


def test_the_same_command_writes_the_same_bytes(page: Path, tmp_path: Path) -> None:
    assert run([*WORDS, "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
    assert "perfmodel report --table-size 10TB</code>" in page.read_text()


def test_a_set_of_tables_has_its_gpus_beside_its_steps(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    out = tmp_path / "p.html"
    assert cli("report", "--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--out", str(out)).code == 0
    assert sections(out)[:4] == ["breakdown", "over-gpus", "changes", "shardings"]
    assert sections(out)[-1] == "validation" and not [x for x in sections(out) if x.startswith("paper")]
    assert "Left out: shapes: the tables of a set" in out.read_text()
    assert re.search(r"as TorchRec runs it · column-wise for all: \d{3} µs\.", out.read_text())
    assert "perfmodel report --model mlperf-dlrm-dcnv2 --gpus 16</code>" in out.read_text()


def test_the_page_of_the_paper_has_its_figures_alone(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    out = tmp_path / "paper.html"
    assert cli("report", "--paper", "--machine", "h200-sxm-ib", "--out", str(out)).code == 0
    assert sections(out) == [name for name in FIGURES if name.startswith("paper")]
    text = out.read_text()
    assert "<h1>The figures of arXiv 2512.05831</h1>" in text  # each names its machine
    assert "Figure 1 of the paper, on h200-sxm-ib" in text and text.count("The paper says: ") == 13
    assert "perfmodel report --paper --machine h200-sxm-ib</code>" in text


def test_json_tells_what_is_in_the_page(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    out = tmp_path / "small.html"
    told = json.loads(cli("report", "--table-size", "1GB", "--json", "--out", str(out)).out)
    assert told["file"] == str(out) and told["bytes"] == out.stat().st_size
    blocks = {block["name"]: block for block in told["blocks"]}
    assert "fit on one GPU" in blocks["slowdown"]["title"] and blocks["breakdown"]["left_out"] is None
    assert blocks["changes"]["title"] is None and "--table-size" in blocks["changes"]["left_out"]


def test_a_file_that_is_there_stays(cli: Callable[..., Outcome], page: Path) -> None:
    before = page.read_bytes()
    is_an_error(cli(*WORDS, "--out", str(page)), 2, "exists already", "name another by --out")
    assert page.read_bytes() == before


def test_a_run_of_ones_own_shows_what_it_knows(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    folder, out = own_run.write_run(tmp_path / "four-cores-01234567"), tmp_path / "own.html"
    words = ("--calibration", str(folder), "--batch", "128", "--dim", "32", "--pooling", "8")
    done = cli("report", *words, "--gpus", "4", "--out", str(out), "--json")
    assert done.code == 0, done.err
    blocks = {block["name"]: block for block in json.loads(done.out)["blocks"]}
    assert "On 4 GPUs" in blocks["collectives"]["title"] and blocks["shardings"]["title"]
    assert " on 4 GPUs (" in out.read_text()
    far = ("report", *words[:2], "--table-size", "10TB", "--out", str(tmp_path / "far.html"))
    is_an_error(cli(*far), 3, "measured on 2, 4 GPUs")
    assert "(partial" not in out.read_text() and "not checked" not in out.read_text()
    (path,) = folder.glob("mpi*.json")
    doubt = {"complete": False, "checked": False}
    path.write_text(read_calibration(path).model_copy(update=doubt).to_json())
    assert cli("report", *words, "--gpus", "4", "--out", str(tmp_path / "doubt.html")).code == 0
    doubts = (tmp_path / "doubt.html").read_text()
    assert "(partial: points of its plan are missing) (results were not checked" in doubts


@pytest.mark.parametrize("name", ["x.pdf", "x.md", "-", "html"])
def test_a_page_is_a_file_of_html(cli: Callable[..., Outcome], name: str) -> None:
    is_an_error(cli("report", "--out", name), 2, "a page is a .html file")


BAD = "<script>alert(1)</script>"


def test_text_from_files_stays_text() -> None:
    for text in (BAD, "</SCRIPT>", "<!--", "\u2028<b>"):
        safe = escape_script([text])
        assert json.loads(safe) == [text] and not re.search("<[/!s]|\u2028", safe, re.IGNORECASE)
    block = Block("n", BAD, BAD, new_figure([]), BAD, ({"<b>": "x|y"},))
    card = Card(BAD, [BAD], [BAD], BAD, [BAD])
    written = assemble.render_page(Page(BAD, card, (block, Missing("m", BAD))))
    assert BAD not in written and "&lt;script" in written


def test_a_machine_of_a_file_is_escaped(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    shown = cli("show", "machines", "h100-sxm-ib", "--toml").out
    title = re.sub(r'(?m)^title = ".*"', f'title = "{BAD}"', shown)
    (tmp_path / "bad.toml").write_text(title)
    out = tmp_path / "p.html"
    assert cli("report", "--machine", str(tmp_path / "bad.toml"), "--out", str(out)).code == 0
    assert BAD not in out.read_text() and "&lt;script&gt;" in out.read_text()


def test_a_block_is_plain_data() -> None:
    figure = new_figure([], height=100)
    rows = ({"a": 1.5, "b": "x"}, {"a": float("nan"), "c": None})
    found = build_data(Block("n", "t", "h", figure, "s", rows))
    assert found["columns"] == ["a", "b", "c"] and found["rows"] == [[1.5, "x", None], [None, None, None]]
    assert "height:100px" in render_block(Block("n", "t", "h", figure, "s", rows))
