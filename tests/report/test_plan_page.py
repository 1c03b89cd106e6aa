"""The page of a plan: the numbers of ``--json``, sentences from them, safe text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from searches import ask_plan

from perfmodel.answer import Answer
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.report.figures import gpu_columns as gpus_of
from perfmodel.report.figures import placements as pieces
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.gpu_columns import ALIKE, EACH, GpuColumn, Shown, join_ranks
from perfmodel.report.figures.placements import hold_pieces, placements, sum_pieces
from perfmodel.report.page.assemble import build_document, render_page
from perfmodel.report.page.parts import Page
from perfmodel.report.page.plan_page import build_card, plan_page
from perfmodel.report.plan_text import fullest_gpus, limit_words, plan_text
from perfmodel.schema.workload import Table, TableSet, zipf
from perfmodel.units import format_bytes, format_ratio, format_time

BAD = "<script>alert(1)</script>"
SHAPES = {
    BAD: (10**6, 64, 10.0),
    "small": (1000, 64, 2.0),
    "other": (300_000, 128, 5.0),
    "whole": (2 * 10**6, 32, 20.0),
    "tiny": (500, 32, 1.0),
}
TABLES = TableSet("mine", tuple(Table(name, *shape) for name, shape in SHAPES.items()))
GPUS, LIMIT = 16, 2e9
SCALES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
COPY = Placement.of(Scheme(Exchange.DP))
PLACED = (
    Placement.of(Scheme(Exchange.RB, 2, 2), [0, 1, 8, 9]),
    COPY,
    Placement.of(Scheme(Exchange.UB, GPUS), range(GPUS)),
    Placement.of(Scheme(Exchange.SPARSE, 1, 1, 1000), [3]),
    COPY,
)
"""On 16 GPUs in domains of 8: a table in 2 x 2 parts, copies, row-wise, a whole one with hot rows."""


@pytest.fixture(scope="module")
def question() -> PlanQuestion:
    options = {"distribution": zipf(1.05), "objective": "training", "most_bytes": LIMIT}
    return ask_plan(TABLES, GPUS, batch=512, **options)


@pytest.fixture(scope="module")
def planned(question: PlanQuestion) -> Planned:
    return question.price(Plan(question.tables, PLACED, GPUS, 8))


@pytest.fixture(scope="module")
def answer(question: PlanQuestion, planned: Planned) -> Answer:
    return question.build_answer(planned.result)


@pytest.fixture(scope="module")
def shown(planned: Planned) -> Shown:
    return Shown.of(planned)


@pytest.fixture(scope="module")
def page(planned: Planned, answer: Answer) -> Page:
    return plan_page(planned, answer, f"perfmodel plan --model '{BAD}'")


def searched(planned: Planned, bound_s: float, stopped: str = "effort") -> Planned:
    """As if it had been searched for."""
    return replace(planned, result=replace(planned.result, bound_s=bound_s, stopped=stopped))


def columns(block: Block, view: int) -> dict[int, list[tuple[float, float]]]:
    """(from, height) of the blocks of each column as a switch shows them, lowest first, in SI units."""
    unit = block.switches[view].layout["yaxis"]["title"]["text"].rsplit("(")[-1].rstrip(")")
    traces = block.switches[view].traces
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for at, trace in enumerate(block.figure.data):
        for x, base, height in zip(trace.x, traces["base"][at], traces["y"][at], strict=True):
            found[x].append((base * SCALES[unit], height * SCALES[unit]))
    return {x: sorted(blocks) for x, blocks in found.items()}


def test_columns_are_the_memory_and_the_work_of_each_gpu(planned: Planned, shown: Shown) -> None:
    """And the lines are the time of the plan, and the memory that may be used."""
    block = placements(shown)
    for view, total in enumerate((shown.shares.total_s.tolist(), planned.to_dict()["memory_bytes"])):
        drawn = columns(block, view)
        assert set(drawn) == set(range(GPUS))
        for rank, blocks in drawn.items():
            assert sum(blocks[-1]) == pytest.approx(total[rank])
            for (low, height), (above, _) in pairwise(blocks):
                assert above == pytest.approx(low + height, rel=1e-6, abs=1e-9 * sum(blocks[-1]))
    for switch, level in zip(block.switches, (planned.result.cost.time_s, LIMIT), strict=True):
        unit = switch.layout["yaxis"]["title"]["text"].rsplit("(")[-1].rstrip(")")
        assert [shape["y0"] * SCALES[unit] for shape in switch.layout["shapes"]] == pytest.approx([level] * 2)


def test_rows_to_take_along_are_those_of_the_plan(planned: Planned, shown: Shown) -> None:
    rows = placements(shown).data
    shards = {
        (row["rank"], row["holds"], row["row_part"], row["column_part"])
        for row in rows
        if row["row_parts"] is not None
    }
    said = set()
    for placement in planned.to_dict()["plan"]["placements"]:
        for at, rank in enumerate(placement.get("ranks") or []):
            said.add((rank, placement["table"], *divmod(at, placement["col_parts"])))
    assert shards == said and len(said) == 4 + GPUS + 1
    held = [row for row in rows if row["sharding"] == pieces.HOT]
    assert len(held) == GPUS and {row["holds"] for row in held} == {"whole"}
    assert {row["rows_bytes"] for row in held} == {1000 * 32 * 4}


def test_steps_are_those_of_the_document(planned: Planned, page: Page) -> None:
    told = planned.to_dict()["steps"]
    rows = page.blocks[1].data  # type: ignore[union-attr]
    assert [(row["step"], row["time_s"]) for row in rows] == [(step["name"], step["time_s"]) for step in told]


def test_the_busiest_gpus_are_those_with_most_work(planned: Planned, shown: Shown) -> None:
    """Their work and memory, and what takes it, from the pieces of the figure."""
    text = fullest_gpus(planned).splitlines()
    total, rank = shown.shares.total_s, int(np.argmax(shown.shares.total_s))
    assert text[1].split()[0] == str(rank) and format_time(float(total[rank])) in text[1]
    assert format_bytes(planned.to_dict()["memory_bytes"][rank], binary=False) in text[1]
    works = sum_pieces(shown, hold_pieces(shown, rank))
    assert sum(time_s for _, time_s in works) == pytest.approx(total[rank])
    assert works[0][0] in " ".join(text) and len(text) >= 4


def test_the_card_says_what_the_text_says(planned: Planned, answer: Answer) -> None:
    text = " ".join(plan_text(planned, answer, None, None, (), {}).split())
    card, time_s = build_card(planned, answer), planned.result.cost.time_s
    best = min(plan.time_s for plan in planned.baselines if plan.time_s is not None)
    assert f"{format_ratio(best / time_s)} as fast" in card.sentence
    for words in (format_time(time_s), "M samples/s", "table-wise"):
        assert words in text and words in card.sentence + card.times
    assert limit_words(planned) in text and limit_words(planned) in card.findings[0]
    assert sum(card.evidence.values()) == pytest.approx(1)
    stopped = build_card(searched(planned, 1e-6, "interrupt"), answer)
    assert "Stopped by Ctrl-C" in " ".join(stopped.notes) and "Ids: zipf:1.05." in card.notes
    near = build_card(searched(planned, 0.8 * time_s), answer).sure
    assert f"at least {format_time(0.8 * time_s)} for any plan" in near
    for far in (planned, searched(planned, 0.6 * time_s)):
        assert "for any plan" not in build_card(far, answer).sure


def test_titles_change_with_the_plan(question: PlanQuestion, shown: Shown) -> None:
    moved = Plan(question.tables, (*PLACED[:3], COPY, COPY), GPUS, 8)
    ours, theirs = placements(shown).title, placements(Shown.of(question.price(moved))).title
    assert "Of 5 tables 2 are data-parallel, " in ours and "1 has its hottest rows" in ours
    assert "3 are data-parallel" in theirs and "hottest" not in theirs


def test_one_gpu_has_a_page_too(question: PlanQuestion) -> None:
    """All tables are copied to it, and nothing is compared with another GPU."""
    alone = question.use_gpus(1)
    planned = alone.price(Plan(alone.tables, (COPY,) * 5, 1, 1))
    page = plan_page(planned, alone.build_answer(planned.result), "")
    assert page.blocks[0].title == "All 5 tables are data-parallel on 1 GPU."  # type: ignore[union-attr]
    assert page.card.sentence.endswith("on 1 GPU: nothing is sharded.")


def test_many_gpus_are_classes_and_then_some_of_them(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, every = Shown.of(planned).columns
    assert (kind, len(every)) == (EACH, GPUS)
    monkeypatch.setattr(gpus_of, "MOST_COLUMNS", 3)
    kind, classes = Shown.of(planned).columns
    assert kind == ALIKE and sorted(c.count for c in classes) == [1, 4, 11]
    assert {column.count for column in classes if column.rank == 3} == {1}
    busy = [Shown.of(planned).shares.total_s[column.rank] for column in classes]
    assert busy == sorted(busy, reverse=True) and busy[0] > busy[-1]
    block = placements(Shown.of(planned))
    assert {row["ranks_alike"] for row in block.data} == {1, 4, 11}
    assert list(block.figure.layout.xaxis.ticktext).count("3") == 1
    monkeypatch.setattr(gpus_of, "MOST_COLUMNS", 2)
    kind, some = Shown.of(planned).columns
    total = Shown.of(planned).shares.total_s
    assert kind == gpus_of.SOME and [total[c.rank] for c in some] == [total.max(), total.min()]
    assert "2 of 16" in Shown.of(planned).describe_columns()


def test_columns_of_alike_gpus_are_named_by_their_ranks() -> None:
    """Domains of 8: a table on the third, another one on the sixth."""
    shapes = (10**8, 64, 10.0), (10**5, 64, 2.0)
    tables = TableSet("two", tuple(Table(f"t{at}", *shape) for at, shape in enumerate(shapes)))
    question = ask_plan(tables, 128, batch=512)
    placed = [Placement.of(Scheme(Exchange.TWO_LEVEL, 8), range(at, at + 8)) for at in (16, 40)]
    shown = Shown.of(question.price(Plan(question.tables, tuple(placed), 128, 8)))
    block = placements(shown)
    assert set(block.figure.layout.xaxis.ticktext) == {"16–23", "40–47", "0–15<br>+96"}
    assert any("each of ranks 16–23" in text for trace in block.figure.data for text in trace.hovertext)
    assert join_ranks([0, 1, 2, 5, 7, 8]) == ["0–2", "5", "7–8"]
    assert GpuColumn(4, (4, 5, 9)).label() == "4–5<br>9" and GpuColumn(4, (4,)).name(EACH) == "rank 4"


def test_many_blocks_are_drawn_as_one(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = placements(shown)
    monkeypatch.setattr(pieces, "MOST_BLOCKS", 50)
    block = placements(shown)
    assert len(block.data) < len(whole.data)
    assert any(row["holds"] == "2 tables" for row in block.data)  # both copies
    for view in (0, 1):
        for x, blocks in columns(block, view).items():
            assert sum(blocks[-1]) == pytest.approx(sum(columns(whole, view)[x][-1]))


def test_names_from_files_stay_text(page: Page) -> None:
    for block in page.blocks:
        assert isinstance(block, Block)
        for trace in block.figure.data:
            words = [*(trace.hovertext or ()), *(getattr(trace, "text", None) or ()), trace.name or ""]
            assert not any("<script" in text for text in words if text)
    html = render_page(page)
    assert BAD not in html and "&lt;script&gt;" in html
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert data and json.loads(data[1]) == json.loads(json.dumps(build_document(page)))
    assert not re.search(r'<(?:script|link|img)[^>]*\b(?:src|href)="(?!data:)', html)
    assert len(html.encode()) < 6e6


def test_the_page_brings_the_plan_unless_it_is_large(
    planned: Planned, answer: Answer, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = build_document(page)
    assert told["plan"] == json.loads(json.dumps(planned.to_dict()["plan"]))
    monkeypatch.setattr("perfmodel.report.page.plan_page.MOST_RANKS", 3)
    assert build_document(plan_page(planned, answer, ""))["plan"] is None


def test_the_sources_have_the_command(planned: Planned, answer: Answer, page: Page) -> None:
    assert "To reproduce" in page.provenance and "--out plan.json" not in page.provenance
    stopped = plan_page(searched(planned, 1e-6, "interrupt"), answer, "").provenance
    assert "Ctrl-C ended" in stopped and "--out plan.json" in stopped
