"""The page of ``chip plan --report``: the numbers of ``--json``, sentences from them, safe text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from cli_calls import mapped

from perfmodel.onechip.answer import ChipAnswer, answer_on
from perfmodel.passes.tables import PlanTables
from perfmodel.report.onechip import cores_figure as figures
from perfmodel.report.onechip.mapping_page import chip_card, chip_page
from perfmodel.report.onechip.mapping_text import mapping_text
from perfmodel.report.page.assemble import document, page_html
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import zipf
from perfmodel.units import counted, format_ratio, format_time

BAD = "<script>alert(1)</script>"
TABLES = f"rows,dim,pooling,name\n1000000,64,10,{BAD}\n1000,64,2,small\n300000,128,5,other\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answer(model: Path) -> ChipAnswer:
    ids = zipf(1.05)
    return answer_on(load_chip("ascend-910"), PlanTables.load(str(model), ids), 512, ids, effort="quick")


def columns(block: Any, axis: str | None) -> dict[int, float]:
    """Height of the column of each core in one half of the figure [s]."""
    unit = block.figure.layout.yaxis.title.text
    factor = {"time (s)": 1.0, "time (ms)": 1e3, "time (µs)": 1e6, "time (ns)": 1e9}[unit]
    found: dict[int, float] = defaultdict(float)
    for trace in block.figure.data:
        if trace.xaxis == axis:
            for core, height in zip(trace.x, trace.y, strict=True):
                found[core] += height / factor
    return found


@pytest.mark.parametrize("coloured", [1, 14])
def test_columns_are_those_of_the_document(
    answer: ChipAnswer, monkeypatch: pytest.MonkeyPatch, coloured: int
) -> None:
    monkeypatch.setattr(figures, "COLOURED", coloured)
    told, block = answer.to_dict(), figures.cores(answer)
    before, after = columns(block, None), columns(block, "x2")
    assert list(before.values()) == pytest.approx([told["global_memory_s"]] * 32)
    assert [after[core] for core in range(32)] == pytest.approx(told["core_s"])
    assert block.figure.data[-1].name == ("2 other tables" if coloured == 1 else block.figure.data[-2].name)


def test_the_rows_to_take_along_are_those_of_the_document(answer: ChipAnswer) -> None:
    block = figures.cores(answer)
    go.Figure(block.figure.to_dict())  # checked by plotly
    told, rows = answer.to_dict(), block.data
    before = [row for row in rows if row["mapping"] == "before"]
    assert [(r["table"], r["way"], r["time_s"]) for r in before] == [
        (b["table"], b["way"], b["time_s"]) for b in told["before"]
    ]
    after = {
        (
            r["core"],
            r["table"],
            r["way"],
            *(r["first_row"], r["end_row"], r["first_column"], r["end_column"]),
            *(r["first_sample"], r["end_sample"], r["time_s"], r["held_bytes"]),
        )
        for r in rows
        if r["mapping"] == "after"
    }
    assert after == {
        (
            column["core"],
            b["table"],
            b["way"],
            *(*b["rows"], *b["columns"], *b["bags"], b["time_s"], b["held_bytes"]),
        )
        for column in told["after"]
        for b in column["blocks"]
    }


def test_sentences_change_with_the_data(answer: ChipAnswer) -> None:
    searched = replace(answer.searched, seconds=2 * answer.searched.seconds)
    slow = replace(answer, searched=searched, limit="memory")
    for one in (answer, slow):
        ratio = format_ratio(one.global_memory.time_s / one.time_s)
        assert chip_card(one).sentence.startswith(f"{ratio} as fast as symmetric-GM on ascend-910: ")
        assert f"takes {format_time(one.time_s)} instead" in figures.cores(one).title
        assert ratio in figures.cores(one).title
    assert "global memory limits" in chip_card(slow).sentence != chip_card(answer).sentence


def test_names_from_files_stay_text(answer: ChipAnswer) -> None:
    figure = figures.cores(answer).figure
    for trace in figure.data:
        words = [trace.hovertext] if isinstance(trace.hovertext, str) else list(trace.hovertext)
        assert not any("<script" in text for text in [trace.name, *words])
    made = chip_page(answer, f"perfmodel plan --model '{BAD}'")
    page = page_html(made)
    assert BAD not in page and "&lt;script&gt;" in page
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found and json.loads(found[1]) == json.loads(json.dumps(document(made)))


def test_the_page_is_written_once(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    words = ("--chip", "ascend-910", "--model", str(model), "--effort", "quick", "--json")
    code, text, said = mapped(*words, "--report", str(out))
    assert (code, said) == (0, f"wrote {out}\n")
    told, page = json.loads(text), out.read_text(encoding="utf-8")
    assert f"{format_ratio(told['speedup'])} as fast as symmetric-GM" in page
    assert (
        "perfmodel chip plan --report out.html --force --chip" in page
        and "--json" not in page.split("<pre>")[-1]
    )
    assert not re.search(r'<(?:script|link|img)[^>]*\b(?:src|href)="(?!data:)', page)
    code, text, said = mapped(*words, "--report", str(out))
    assert (code, text) == (2, "") and "exists already" in " ".join(said.split()) and "out-2.html" in said
    assert "--report" in said and out.read_text(encoding="utf-8") == page
    assert mapped(*words, "--report", str(out), "--force")[0] == 0


@pytest.mark.parametrize("stopped", ["effort", "time-limit", "interrupt", "no improvement"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_card_says_what_the_terminal_says(answer: ChipAnswer, stopped: str, symmetric: bool) -> None:
    """Symmetric-GM that waits nowhere, the bound, and what ended the search."""
    loose = 0.5 * answer.global_memory.time_s
    one = replace(answer, stopped=stopped, symmetric=symmetric, any_order_s=loose)
    head, text = chip_card(one), " ".join(mapping_text(one).split())
    card = " ".join([head.sure, *head.notes])
    least = format_time(one.bound_s)
    for words in (
        f"as symmetric-GM without waits ({format_time(loose)})",
        f"at least {least}" if symmetric else f"No mapping of these cuts is faster than {least}",
        f"{counted(one.searched.tried, 'mapping')} tried",
        *{"effort": ["the effort was spent"], "interrupt": ["Ctrl-C came"]}.get(stopped, []),
        *(["stopped by --time-limit after"] if stopped == "time-limit" else []),
    ):
        assert words in text and words.lower() in card.lower()


def test_the_source_names_the_ids_and_a_command(answer: ChipAnswer) -> None:
    source = figures.cores(answer).source
    assert "ids zipf:1.05, 512 samples" in source
    assert "perfmodel chip explain WAY --chip ascend-910" in source


def test_the_page_again_replaces_the_page(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--model", str(model), "--chip", "ascend-910", "--effort", "quick", "--report", str(page))
    assert mapped(*words)[0] == 0
    assert "--report page.html --force" in page.read_text(encoding="utf-8")


def test_few_cores_have_a_number_each(answer: ChipAnswer, model: Path) -> None:
    few = load_chip("ascend-910").with_overrides({"cores": 4})
    small = answer_on(few, PlanTables.load(str(model)), 64, effort="quick")
    ticks = [figures.cores(each).figure.layout.xaxis.dtick for each in (small, answer)]
    assert ticks == [1, None]
