"""The page of a plan: the numbers of ``--json``, sentences from them, safe text."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
from dealt_plan import uniform_plan
from searches import ask_plan

from perfmodel.answer import Answer
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.report.chip_text import cores_text
from perfmodel.report.figures import placements
from perfmodel.report.figures.placements import BUFFERS, HOT, draw_placements, list_held, list_own_times
from perfmodel.report.page.assemble import Page, render_page
from perfmodel.report.page.plan_page import build_card, plan_page
from perfmodel.report.plan_text import limit_words, plan_text, ranks_text
from perfmodel.schema.workload import Table, TableSet, zipf
from perfmodel.units import format_bytes, format_fraction, format_time

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
    return question.build_answer(planned.costed)


@pytest.fixture(scope="module")
def page(planned: Planned, answer: Answer) -> Page:
    return plan_page(planned, answer, f"perfmodel plan --model '{BAD}'")


def searched(planned: Planned, bound_s: float, stopped: str = "effort") -> Planned:
    """As if it had been searched for."""
    return replace(planned, result=replace(planned.result, bound_s=bound_s, stopped=stopped))


def test_columns_are_the_work_and_the_memory_of_each_gpu(planned: Planned) -> None:
    block = draw_placements(planned)
    busy_s, held = np.zeros(GPUS), np.zeros(GPUS)
    for row in block.data:
        busy_s[row["rank"]] += row.get("time_s", 0.0)
        held[row["rank"]] += row.get("held_bytes", 0.0)
    assert held.tolist() == pytest.approx(planned.to_dict()["memory_bytes"])
    assert busy_s.min() < busy_s.max() <= planned.costed.time_s
    assert [shape["y0"] for shape in block.figure["layout"]["shapes"]] == [planned.costed.time_s]
    figure = go.Figure(block.figure)  # checked by plotly
    assert sum(sum(trace.y) for trace in figure.data if trace.yaxis == "y") == pytest.approx(busy_s.sum())
    assert f"{format_bytes(held.max(), binary=False)} on the fullest, of the 2 GB" in block.how_to_read
    assert f"calibration {planned.evaluator.setting.links.calibrations[0]}, ids " in block.source
    work, ranks = figure.layout.yaxis.range, figure.layout.xaxis.range
    assert f"busy for {format_fraction(busy_s.mean() / planned.costed.cost.time_s)} of" in block.title
    assert work[0] == 0 and 1 < work[1] / planned.costed.cost.time_s < 1.5
    assert -1 < ranks[0] < -0.4 and GPUS - 0.6 < ranks[1] < max(GPUS, 4)


def test_a_gpu_holds_copies_hot_rows_its_shards_and_buffers(planned: Planned) -> None:
    names = planned.evaluator.tables.names
    on_three = {name: [names[t] for t in tables] for name, size, tables in list_held(planned, 3) if size > 0}
    on_one = {name: [names[t] for t in tables] for name, size, tables in list_held(planned, 1) if size > 0}
    shared = {"data-parallel": ["small", "tiny"], HOT: ["whole"], "row-wise": ["other"], BUFFERS: []}
    assert on_three == {**shared, "table-wise": ["whole"]}
    assert [BAD] in on_one.values() and on_one.items() >= shared.items()
    held = {name: size for name, size, _ in list_held(planned, 3)}
    assert held[HOT] >= 1000 * 32 * 4  # and the state of the optimizer


@pytest.mark.parametrize("training", [False, True])
def test_alike_gpus_never_wait_and_others_wait_for_the_holder(training: bool) -> None:
    tables = TableSet("mine", (Table("a", 1_000_000, 64, 10, "fp32"), Table("b", 1000, 64, 2, "fp32")))
    objective = "training" if training else "forward"
    asked = ask_plan(tables, 4, batch=256, distribution=zipf(1.05), objective=objective)
    alike = asked.price(uniform_plan(asked.tables, "row-wise", 4, 4))
    for row in alike.costed.cost.rows:
        assert list_own_times(alike)[row.label] == pytest.approx(np.full(4, row.time_s))
    placed = Placement.of(Scheme(Exchange.SPARSE, 1, 1, 100), [1]), COPY
    uneven = asked.price(Plan(asked.tables, placed, 4, 4))
    busy_s = np.sum([*list_own_times(uneven).values()], axis=0)
    assert int(np.argmax(busy_s)) == 1 and busy_s[1] == pytest.approx(uneven.costed.time_s)
    assert len({round(float(time), 12) for time in np.delete(busy_s, 1)}) == 1


def test_steps_are_those_of_the_document(planned: Planned, page: Page) -> None:
    told = planned.to_dict()["steps"]
    rows = page.blocks[1].data  # type: ignore[union-attr]
    assert [(row["step"], row["time_s"]) for row in rows] == [(step["name"], step["time_s"]) for step in told]


def test_the_card_says_what_the_text_says(planned: Planned, answer: Answer) -> None:
    text = " ".join(plan_text(planned, answer, None, (), {}).split())
    card, time_s = build_card(planned, answer), planned.costed.time_s
    for words in (format_time(time_s), "M samples/s", "table-wise"):
        assert words in text and words in " ".join([card.sentence, *card.lines])
    assert limit_words(planned) in text and limit_words(planned) in card.findings[0]
    assert "Evidence: " in card.lines[-1] and "Ids: zipf:1.05." in card.notes
    stopped = build_card(searched(planned, 1e-6, "interrupt"), answer)
    assert "stopped by Ctrl-C" in " ".join(stopped.lines)
    near = " ".join(build_card(searched(planned, 0.8 * time_s), answer).lines)
    assert f"At least {format_time(0.8 * time_s)} for any plan" in near
    for far in (planned, searched(planned, 0.6 * time_s)):
        assert "for any plan" not in " ".join(build_card(far, answer).lines)


def test_titles_change_with_the_plan(question: PlanQuestion, planned: Planned) -> None:
    moved = Plan(question.tables, (*PLACED[:3], COPY, COPY), GPUS, 8)
    ours, theirs = draw_placements(planned).title, draw_placements(question.price(moved)).title
    assert "5 tables on 16 GPUs: 2 data-parallel, " in ours and "1 of them with hottest rows" in ours
    assert "3 data-parallel" in theirs and "hottest" not in theirs


def test_one_gpu_has_a_page_too(question: PlanQuestion) -> None:
    """All tables are copied to it, and nothing is compared with another GPU."""
    alone = question.use_gpus(1)
    planned = alone.price(Plan(alone.tables, (COPY,) * 5, 1, 1))
    page = plan_page(planned, alone.build_answer(planned.costed), "")
    title = page.blocks[0].title  # type: ignore[union-attr]
    assert title == "5 tables on 1 GPU: 5 data-parallel; the mean GPU is busy for 100 % of the time."
    assert "on 1 GPU (95 % band " in page.card.sentence


def test_of_many_gpus_some_are_drawn(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "MOST_COLUMNS", 2)
    block, total = draw_placements(planned), np.sum([*list_own_times(planned).values()], axis=0)
    ranks = list(dict.fromkeys(row["rank"] for row in block.data))
    assert [total[rank] for rank in ranks] == [total.max(), total.min()]
    assert "2 of 16, the busiest on the left" in block.how_to_read


def test_names_from_files_stay_text(page: Page) -> None:
    html = render_page(page)
    assert BAD not in html and "&lt;script" in html
    assert not re.search(r'<(?:script|link|img)[^>]*\b(?:src|href)="(?!data:)', html)
    assert len(html.encode()) < 5.3e6


def test_the_sources_have_the_command(planned: Planned, answer: Answer, page: Page) -> None:
    assert "To reproduce" in page.provenance and "--out plan.json" not in page.provenance
    stopped = plan_page(searched(planned, 1e-6, "interrupt"), answer, "").provenance
    assert "Ctrl-C ended" in stopped and "--out plan.json" in stopped


def test_ranks_and_cores_are_said_in_few_words() -> None:
    said = {"": "all", "3": "3", "8 9": "8–9", "8 9 10 11": "8–11", "0 3 9": "0, 3, 9", "0 3 9 12": "4 of 16"}
    ranks = {text: np.array(text.split(), dtype=np.int64) for text in said}
    assert {text: ranks_text(ranks[text], 16) for text in said} == said
    assert ranks_text(np.arange(16), 16) == "all" and ranks_text(np.arange(15), 16) == "0–14"
    cores = {"3": "3", "8 9": "8-9", "8 9 10": "8-10", "0 3 9": "0 3 9", "0 3 9 12": "0 3 9 … (4)"}
    assert {text: cores_text([*map(int, text.split())]) for text in cores} == cores


def test_what_limits_a_plan_is_said_beyond_its_bounds() -> None:
    """More than 1.05 times the mean bytes; collectives within 1.5 of their floor for over a fifth."""

    def limits(imbalance: float, near_s: float, time_s: float = 5.0, collective: str = "all_to_all") -> str:
        steps = [SimpleNamespace(collective=collective, time_s=near_s, floor_s=1.0)]
        steps.append(SimpleNamespace(collective="all_reduce", time_s=1.5, floor_s=1.0))
        longest = SimpleNamespace(label="gather", share=0.5, imbalance=imbalance, rank=3)
        cost = SimpleNamespace(limiting=longest, rows=steps, time_s=time_s)
        return limit_words(SimpleNamespace(costed=SimpleNamespace(cost=cost)))  # type: ignore[arg-type]

    least = "the longest step is gather, 50.0 % of the time"
    assert limits(1.05, 1.0) == limits(1.0, 1.25, 4.0, "") == f"{least}."
    assert limits(1.25, 1.0) == f"{least}, as rank 3 has 1.25× the bytes of the mean rank."
    assert limits(1.0, 1.25) == f"{least}; collectives near their latency floor take 25.0 %."
