"""The page of ``chip plan --report``: the numbers of ``--json``, sentences from them, safe text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cli_calls import mapped

from perfmodel.onechip import blocks as blocks_module
from perfmodel.onechip.answer import ChipAnswer, answer_on
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.report.onechip import cores_figure as columns_of
from perfmodel.report.onechip import mapping_figures as figures
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


def columns(block: Any, axis: str | None) -> dict[int, list[tuple[float, float]]]:
    """(from, time) of the blocks of each core in one half of the figure, lowest first [s]."""
    unit = block.figure.layout.yaxis.title.text
    factor = {"time (s)": 1.0, "time (ms)": 1e3, "time (µs)": 1e6, "time (ns)": 1e9}[unit]
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for trace in block.figure.data:
        if trace.xaxis == axis:
            for core, base, height in zip(trace.x, trace.base, trace.y, strict=True):
                found[core].append((base / factor, height / factor))
    return {core: sorted(blocks) for core, blocks in found.items()}


def test_columns_are_those_of_the_document(answer: ChipAnswer) -> None:
    told, block = answer.to_dict(), figures.cores(answer)
    before, after = columns(block, None), columns(block, "x2")
    assert set(before) == set(range(32))
    for blocks in before.values():
        assert sorted(t for _, t in blocks) == pytest.approx(sorted(b["time_s"] for b in told["before"]))
        assert sum(blocks[-1]) == pytest.approx(told["global_memory_s"])
    for column in told["after"]:
        blocks = after.get(column["core"], [])
        assert sorted(t for _, t in blocks) == pytest.approx(sorted(b["time_s"] for b in column["blocks"]))
        assert (sum(blocks[-1]) if blocks else 0) == pytest.approx(column["time_s"])
        for (low, height), (above, _) in pairwise(blocks):
            assert above == pytest.approx(low + height)  # no gap, nothing covered
    assert max(sum(blocks[-1]) for blocks in after.values()) < told["global_memory_s"]


def test_the_rows_to_take_along_are_those_of_the_document(answer: ChipAnswer) -> None:
    told, rows = answer.to_dict(), figures.cores(answer).data
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


def test_buffers_and_other_ids_are_those_of_the_document(answer: ChipAnswer) -> None:
    told = answer.to_dict()
    block = figures.buffers(answer)
    assert [row["held_bytes"] for row in block.data] == told["held_bytes"]
    shares = [100 * held / told["buffer_bytes"] for held in told["held_bytes"]]
    assert list(block.figure.data[0].y) == pytest.approx(shares)
    block = figures.other_ids(answer)
    assert [dict(row) for row in block.data] == told["sensitivity"]
    for trace, key in zip(block.figure.data, ("global_memory_s", "best_symmetric_s", "time_s"), strict=True):
        assert list(trace.y) == [each[key] for each in told["sensitivity"]]


def test_sentences_change_with_the_data(answer: ChipAnswer) -> None:
    slow = replace(answer, batch=replace(answer.batch, seconds=2 * answer.batch.seconds, limit="memory"))
    twice = replace(answer, sensed=(replace(answer.sensed[0], time_s=7.0), *answer.sensed[1:]))
    for one in (answer, slow):
        ratio = format_ratio(one.global_memory.time_s / one.time_s)
        assert chip_card(one).sentence.startswith(f"{ratio} as fast as symmetric-GM on ascend-910: ")
        assert f"takes {format_time(one.time_s)} instead" in figures.cores(one).title
        assert ratio in figures.cores(one).title
    assert "global memory limits" in chip_card(slow).sentence != chip_card(answer).sentence
    assert "zipf:1.05, 7.00 s" in figures.other_ids(twice).title != figures.other_ids(answer).title
    full = figures.buffers(answer).title
    fewer = replace(answer)
    fewer.__dict__["held_bytes"] = 0 * answer.held_bytes
    assert figures.buffers(fewer).title == "No core keeps rows in its buffer." != full


def test_many_pieces_are_one_block_a_core(answer: ChipAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, told = columns(figures.cores(answer), "x2"), answer.to_dict()
    monkeypatch.setattr(columns_of, "COLOURED", 1)
    monkeypatch.setattr(blocks_module, "MOST_BLOCKS", 33)
    few = replace(answer)
    block, document = figures.cores(few), few.to_dict()
    assert block.figure.data[-1].name == "2 other tables"
    again = columns(block, "x2")
    for core, drawn in whole.items():
        assert sum(again[core][-1]) == pytest.approx(sum(drawn[-1]))
    assert len(block.data) == 3 + sum(len(column["blocks"]) for column in document["after"]) <= 3 + 33
    assert document["held_bytes"] == pytest.approx(told["held_bytes"])
    merged = [one for column in document["after"] for one in column["blocks"] if one["rows"] is None]
    assert merged and all(one["table"] == counted(one["tables"], "other table") for one in merged)


def test_a_symmetric_mapping_of_many_tables_is_shown_alike(
    answer: ChipAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = replace(answer, symmetric=True)
    whole = still.to_dict()
    assert len(whole["after"][0]["blocks"]) == 3
    monkeypatch.setattr(blocks_module, "MOST_BLOCKS", 70)
    merged = replace(still).to_dict()
    for one, other in zip(whole["after"], merged["after"], strict=True):
        assert [block["tables"] for block in other["blocks"]] == [1, 2]
        times = [sum(block["time_s"] for block in column["blocks"]) for column in (one, other)]
        assert times == pytest.approx([one["time_s"]] * 2)
        assert one["held_bytes"] == pytest.approx(other["held_bytes"])


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


def test_the_card_claims_no_bound_where_choices_were_not_all_costed(answer: ChipAnswer) -> None:
    few = replace(answer, cuts=replace(answer.cuts, looked_at=answer.cuts.sample.size - 1))
    assert "no mapping of these cuts is faster" in chip_card(replace(answer, symmetric=False)).sure
    for robust in (False, True):
        for symmetric in (False, True):
            said = chip_card(replace(few, robust=robust, symmetric=symmetric)).sure
            assert "no mapping" not in said
            assert "there is no bound, because the effort was spent before" in said
            assert "or more" not in said


@pytest.mark.parametrize("stopped", ["effort", "time-limit", "interrupt", "no improvement"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_card_says_what_the_terminal_says(answer: ChipAnswer, stopped: str, symmetric: bool) -> None:
    """Symmetric-GM that waits nowhere, the bound, and what ended the search."""
    loose = replace(answer.in_any_order, seconds=0.5 * answer.global_memory.time_s)
    one = replace(answer, stopped=stopped, symmetric=symmetric, in_any_order=loose)
    head, text = chip_card(one), " ".join(mapping_text(one).split())
    card = " ".join([head.sure, *head.notes])
    least = format_time(one.bound_s)
    for words in (
        f"as symmetric-GM without waits ({format_time(loose.seconds)})",
        f"at least {least}" if symmetric else f"No mapping of these cuts is faster than {least}",
        f"{counted(one.tried, 'mapping')} tried",
        *{"effort": ["the effort was spent"], "interrupt": ["Ctrl-C came"]}.get(stopped, []),
        *(["stopped by --time-limit after"] if stopped == "time-limit" else []),
    ):
        assert words in text and words.lower() in card.lower()
    slow = replace(loose, seconds=answer.global_memory.time_s)
    assert "waits nowhere" not in chip_card(replace(one, in_any_order=slow)).sure
    few = replace(one, cuts=replace(one.cuts, looked_at=one.cuts.sample.size - 1))
    assert "left in global memory" in " ".join(chip_card(few).notes) and "left in global memory" not in card


def test_sources_name_the_ids_of_their_figure_and_a_command(answer: ChipAnswer) -> None:
    first, *_, last = figures.chip_blocks(answer)
    assert "ids zipf:1.05, 512 samples" in first.source
    assert "ids zipf:1.05, uniform, one-row, 512 samples" in last.source
    for block in (first, last):
        assert "docs/" not in block.source
        assert "perfmodel chip explain WAY --chip ascend-910" in block.source


def test_thin_blocks_have_no_outline(answer: ChipAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outlines of many thin blocks are one white block in the dark."""
    monkeypatch.setattr(columns_of, "_THIN", 0.2)
    block = figures.cores(answer)
    top, seen = float(block.figure.layout.yaxis.range[1]), set()
    for trace in block.figure.data:
        widths = trace.marker.line.width
        widths = [widths] * len(trace.y) if isinstance(widths, float | int) else list(widths)
        for height, width in zip(trace.y, widths, strict=True):
            assert (width > 0) == (height >= 0.2 * top)
            seen.add(width > 0)
    assert seen == {True, False}


def test_the_page_again_replaces_the_page(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--model", str(model), "--chip", "ascend-910", "--effort", "quick", "--report", str(page))
    assert mapped(*words)[0] == 0
    assert "--report page.html --force" in page.read_text(encoding="utf-8")
