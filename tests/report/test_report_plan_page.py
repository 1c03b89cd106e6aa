"""The page of ``plan --report``: the numbers of ``--json``, sentences from them, safe text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from html import unescape
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.outcome import Planned, given_outcome
from perfmodel.report.figures import gpu_columns as gpus_of
from perfmodel.report.figures import placements as pieces
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.gpu_columns import Shown
from perfmodel.report.figures.placements import hold_pieces, placements, sum_pieces
from perfmodel.report.figures.plan_steps import steps
from perfmodel.report.figures.stacked_bars import part_colour, pattern
from perfmodel.report.page.assemble import build_document, render_page
from perfmodel.report.page.plan_page import (
    evidence_shares,
    plan_blocks,
    plan_card,
    plan_page,
    provenance,
)
from perfmodel.report.plan_text import fullest_gpus, plan_text
from perfmodel.schema.workload import zipf
from perfmodel.units import format_bytes, format_ratio, format_time

BAD = "<script>alert(1)</script>"
TABLES = (
    f"rows,dim,pooling,name\n1000000,64,10,{BAD}\n1000,64,2,small\n300000,128,5,other\n2000000,32,20,whole\n"
    "500,32,1,tiny\n"
)
GPUS, LIMIT = 16, 2e9
SCALES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """On 16 GPUs in domains of 8: a table in 2 x 2 parts, copies, row-wise, a whole one with hot rows."""
    path = tmp_path_factory.mktemp("tables") / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    found = PlanTables.load(str(path), zipf(1.05))
    placed = (
        Placement.of(Scheme(Exchange.RB, 2, 2), [0, 1, 8, 9]),
        Placement.of(Scheme(Exchange.DP)),
        Placement.of(Scheme(Exchange.UB, GPUS), range(GPUS)),
        Placement.of(Scheme(Exchange.SPARSE, 1, 1, 1000), [3]),
        Placement.of(Scheme(Exchange.DP)),
    )
    evaluator = Evaluator.on("h100-sxm-ib", found, 512, GPUS, training=True, optimizer="rowwise-adagrad")
    return given_outcome(evaluator, Plan(found, placed, GPUS, 8), LIMIT)


@pytest.fixture(scope="module")
def shown(answer: Planned) -> Shown:
    return Shown.of(answer)


def searched(answer: Planned, bound_s: float, stopped: str = "effort") -> Planned:
    """As if it had been searched for."""
    return replace(answer, found=replace(answer.found, bound_s=bound_s, stopped=stopped))


def columns(block: Block, view: int) -> dict[int, list[tuple[float, float]]]:
    """(from, height) of the blocks of each column as a switch shows them, lowest first, in SI units."""
    unit = block.switches[view].layout["yaxis"]["title"]["text"].rsplit("(")[-1].rstrip(")")
    traces = block.switches[view].traces
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for at, trace in enumerate(block.figure.data):
        for x, base, height in zip(trace.x, traces["base"][at], traces["y"][at], strict=True):
            found[x].append((base * SCALES[unit], height * SCALES[unit]))
    return {x: sorted(blocks) for x, blocks in found.items()}


def test_columns_are_the_memory_and_the_own_time_of_each_gpu(answer: Planned, shown: Shown) -> None:
    block = placements(shown)
    for view, total in enumerate((shown.shares.total_s.tolist(), answer.to_dict()["memory_bytes"])):
        drawn = columns(block, view)
        assert set(drawn) == set(range(GPUS))
        for rank, blocks in drawn.items():
            assert sum(blocks[-1]) == pytest.approx(total[rank])
            for (low, height), (above, _) in pairwise(blocks):
                assert above == pytest.approx(low + height, rel=1e-6, abs=1e-9 * sum(blocks[-1]))


def test_rows_to_take_along_are_those_of_the_plan(answer: Planned, shown: Shown) -> None:
    rows = placements(shown).data
    shards = {
        (row["rank"], row["holds"], row["row_part"], row["column_part"])
        for row in rows
        if row["row_parts"] is not None
    }
    said = set()
    for placement in answer.to_dict()["plan"]["placements"]:
        for at, rank in enumerate(placement.get("ranks") or []):
            said.add((rank, placement["table"], *divmod(at, placement["col_parts"])))
    assert shards == said and len(said) == 4 + GPUS + 1
    held = [row for row in rows if row["sharding"] == gpus_of.HOT]
    assert len(held) == GPUS and {row["holds"] for row in held} == {"whole"}
    assert {row["rows_bytes"] for row in held} == {1000 * 32 * 4}


def test_steps_are_those_of_the_document(answer: Planned, shown: Shown) -> None:
    told = answer.to_dict()
    own = [row for row in steps(shown).data if row["plan"] == "this plan"]
    assert [(row["step"], row["time_s"]) for row in own] == [(s["name"], s["time_s"]) for s in told["steps"]]
    for item in told["baselines"]:
        rows = [row["time_s"] for row in steps(shown).data if row["plan"] == item["name"]]
        assert sum(rows) == pytest.approx(item["time_s"] or 0)


def test_the_lines_are_the_time_of_the_plan_and_the_memory_that_it_may_use(
    answer: Planned, shown: Shown
) -> None:
    for switch, level in zip(placements(shown).switches, (answer.found.cost.time_s, LIMIT), strict=True):
        unit = switch.layout["yaxis"]["title"]["text"].rsplit("(")[-1].rstrip(")")
        assert [shape["y0"] * SCALES[unit] for shape in switch.layout["shapes"]] == pytest.approx([level] * 2)


def test_the_fullest_gpus_are_those_with_most_work(answer: Planned, shown: Shown) -> None:
    """Their own work and memory, and what takes it, from the pieces of the figure."""
    text = fullest_gpus(answer).splitlines()
    total, rank = shown.shares.total_s, int(np.argmax(shown.shares.total_s))
    assert text[1].split()[0] == str(rank) and format_time(float(total[rank])) in text[1]
    assert format_bytes(answer.to_dict()["memory_bytes"][rank], binary=False) in text[1]
    works = sum_pieces(shown, hold_pieces(shown, rank))
    assert sum(time_s for _, time_s in works) == pytest.approx(total[rank])
    assert works[0][0] in " ".join(text) and len(text) >= 4


def test_the_bound_is_said_where_it_is_near(answer: Planned) -> None:
    time_s = answer.found.cost.time_s
    assert (
        f"at least {format_time(0.8 * time_s)} for any plan" in plan_card(searched(answer, 0.8 * time_s)).sure
    )
    for far in (answer, searched(answer, 0.6 * time_s)):
        assert "for any plan" not in plan_card(far).sure


def test_sentences_change_with_the_data(answer: Planned, shown: Shown) -> None:
    cost = answer.found.cost
    slow = replace(answer, found=replace(answer.found, cost=replace(cost, time_s=9 * cost.time_s)))
    assert plan_card(slow).sentence != plan_card(answer).sentence
    assert format_time(9 * cost.time_s) in plan_card(slow).sentence
    best = min(item.time_s for item in answer.baselines if item.time_s is not None)
    assert f"{format_ratio(best / cost.time_s)} as fast" in plan_card(answer).sentence
    placements = list(answer.plan.placements)
    placements[3] = Placement.of(Scheme(Exchange.DP))
    moved = replace(answer.plan, placements=tuple(placements))
    other = given_outcome(answer.evaluator, moved, LIMIT)
    ours, theirs = plan_blocks(answer), plan_blocks(other)
    for one, two in zip(ours, theirs, strict=True):
        assert isinstance(one, Block) and isinstance(two, Block) and one.name == two.name
        assert one.title != two.title, one.name
    assert "Of 5 tables 2 are data-parallel, " in ours[0].title and "1 has its hottest rows" in ours[0].title
    assert "3 are data-parallel" in theirs[0].title and "hottest" not in theirs[0].title
    first = replace(cost.rows[0], time_s=100 * cost.time_s)
    changed = replace(cost, rows=(first, *cost.rows[1:]))
    one = Shown(replace(answer, found=replace(answer.found, cost=changed)), shown.shares)
    assert steps(one).title.startswith("Bucketize takes the largest")
    assert not steps(shown).title.startswith("Bucketize")


def test_one_gpu_has_a_page_too(answer: Planned) -> None:
    """All tables are copied to it, and nothing is compared with another GPU."""
    tables_of_one = answer.evaluator.tables
    evaluator = Evaluator.on("h100-sxm-ib", tables_of_one, 512, 1)
    placed = tuple(Placement.of(Scheme(Exchange.DP)) for _ in range(len(tables_of_one)))
    one = given_outcome(evaluator, Plan(tables_of_one, placed, 1, 1), LIMIT)
    blocks = {block.name: block for block in plan_blocks(one)}
    titles = {name: block.title for name, block in blocks.items() if isinstance(block, Block)}
    assert titles["placements"] == "All 5 tables are data-parallel on 1 GPU."
    assert plan_card(one).sentence.endswith("on 1 GPU: nothing is sharded.")


def test_many_gpus_are_classes_and_then_some_of_them(
    answer: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, every = Shown.of(answer).columns
    assert (kind, len(every)) == (gpus_of.EACH, GPUS)
    monkeypatch.setattr(gpus_of, "MOST_COLUMNS", 3)
    kind, classes = Shown.of(answer).columns
    assert kind == gpus_of.ALIKE and sorted(c.count for c in classes) == [1, 4, 11]
    assert {column.count for column in classes if column.rank == 3} == {1}
    busy = [Shown.of(answer).shares.total_s[column.rank] for column in classes]
    assert busy == sorted(busy, reverse=True) and busy[0] > busy[-1]
    block = placements(Shown.of(answer))
    assert {row["ranks_alike"] for row in block.data} == {1, 4, 11}
    assert list(block.figure.layout.xaxis.ticktext).count("3") == 1
    monkeypatch.setattr(gpus_of, "MOST_COLUMNS", 2)
    kind, some = Shown.of(answer).columns
    total = Shown.of(answer).shares.total_s
    assert kind == gpus_of.SOME and [total[c.rank] for c in some] == [total.max(), total.min()]
    assert "2 of 16" in Shown.of(answer).column_words()


def test_many_blocks_are_drawn_as_one(answer: Planned, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = placements(shown)
    monkeypatch.setattr(pieces, "MOST_BLOCKS", 50)
    block = placements(shown)
    assert len(block.data) < len(whole.data)
    assert any(row["holds"] == "2 tables" for row in block.data)  # both copies
    for view in (0, 1):
        for x, blocks in columns(block, view).items():
            assert sum(blocks[-1]) == pytest.approx(sum(columns(whole, view)[x][-1]))


def test_no_two_steps_look_alike() -> None:
    looks = {(part_colour(at), pattern(at)["shape"]) for at in range(24)}
    assert len(looks) == 24


def test_the_card_says_what_the_text_says(answer: Planned) -> None:
    text = " ".join(plan_text(answer, None, "", None, (), "").split())
    card = plan_card(answer)
    for words in (format_time(answer.found.cost.time_s), "M samples/s", "table-wise"):
        assert words in text and words in card.sentence + card.times
    shares = evidence_shares(answer)
    assert sum(shares.values()) == pytest.approx(1)
    assert card.evidence == shares
    assert "Stopped by Ctrl-C" in " ".join(plan_card(searched(answer, 1e-6, "interrupt")).notes)
    assert "Ids: zipf:1.05." in card.notes


def test_names_from_files_stay_text(answer: Planned) -> None:
    for block in plan_blocks(answer):
        assert isinstance(block, Block)
        for trace in block.figure.data:
            words = [*(trace.hovertext or ()), *(getattr(trace, "text", None) or ()), trace.name or ""]
            assert not any("<script" in text for text in words if text)
        assert not any("<script" in str(text) for text in block.figure.layout.yaxis.ticktext or ())
    command = f"perfmodel plan --model '{BAD}'"
    made = plan_page(answer, command)
    page = render_page(made)
    assert BAD not in page and "&lt;script&gt;" in page
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found and json.loads(found[1]) == json.loads(json.dumps(build_document(made)))
    assert not re.search(r'<(?:script|link|img)[^>]*\b(?:src|href)="(?!data:)', page)
    assert len(page.encode()) < 6e6


def test_the_page_brings_the_plan_unless_it_is_large(
    answer: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = build_document(plan_page(answer, ""))
    assert told["plan"] == json.loads(json.dumps(answer.to_dict()["plan"]))
    monkeypatch.setattr("perfmodel.report.page.plan_page.MOST_RANKS", 3)
    assert build_document(plan_page(answer, ""))["plan"] is None


def test_every_step_has_its_equations(answer: Planned) -> None:
    text = unescape(provenance(answer, ""))
    for row in answer.found.cost.rows:
        assert f"Equations of {row.label}: {format_time(row.time_s)}, " in text
        assert f"{row.label} on {answer.evaluator.gpus} GPUs of " in text
