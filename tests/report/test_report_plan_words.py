"""What a plan's page says and shows where GPUs are many, steps tie, or the search was cut short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cli_calls import planned as asked

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.outcome import Planned, given_outcome
from perfmodel.plan.searching.search import Search
from perfmodel.report.figures.gpu_columns import ALIKE, EACH, GpuColumn, Shown, runs
from perfmodel.report.figures.placements import placements
from perfmodel.report.figures.plan_steps import steps
from perfmodel.report.page.plan_page import provenance
from perfmodel.report.plan_text import limits, longest

GPUS = 128
TABLES = "rows,dim,pooling,name\n100000000,64,10,big\n100000,64,2,other\n"


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """Domains of 8: the large table on the third, the other one on the sixth."""
    path = tmp_path_factory.mktemp("tables") / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    found = PlanTables.load(str(path))
    placed = (
        Placement.of(Scheme(Exchange.TWO_LEVEL, 8), range(16, 24)),
        Placement.of(Scheme(Exchange.TWO_LEVEL, 8), range(40, 48)),
    )
    evaluator = Evaluator.on("h100-sxm-ib", found, 512, GPUS, training=True, optimizer="rowwise-adagrad")
    return given_outcome(evaluator, Plan(found, placed, GPUS, 8), 68e9)


def test_columns_and_titles_name_the_gpus_by_their_ranks(answer: Planned) -> None:
    shown = Shown.of(answer)
    kind, columns = shown.columns
    assert kind == ALIKE and sorted(r for column in columns for r in column.ranks) == list(range(GPUS))
    block = placements(shown)
    axis = block.figure.layout.xaxis
    assert set(axis.ticktext) == {"16–23", "40–47", "0–15<br>+96"} and axis.tickangle == 0
    assert any("each of ranks 16–23" in text for trace in block.figure.data for text in trace.hovertext)


def test_runs_of_ranks() -> None:
    assert runs([0, 1, 2, 5, 7, 8]) == ["0–2", "5", "7–8"]
    assert GpuColumn(0, (0, 1, 2, 5, 7, 8)).tick() == "0–2<br>+3"
    assert GpuColumn(4, (4, 5, 9)).tick() == "4–5<br>9"
    assert GpuColumn(4, (4,)).name(EACH) == "rank 4"


def test_steps_that_take_as_long_are_all_named(answer: Planned) -> None:
    cost = answer.found.cost
    first = replace(cost.rows[0], time_s=cost.time_s)
    second = replace(cost.rows[1], time_s=cost.time_s * (1 - 1e-6))
    tied = replace(cost, rows=(first, second, *cost.rows[2:]))
    one, two = first.label, second.label
    assert longest(tied) == (f"{one} and {two}", " each")
    found = replace(answer, found=replace(answer.found, cost=tied))
    assert f"{one} and {two} take " in limits(found) and "100 % of it each" in limits(found)
    title = steps(Shown(found, Shown.of(answer).shares)).title
    assert title.lower().startswith(f"{one} and {two} take the largest part of ") and "100 % each" in title
    alone = replace(cost, rows=(first, *cost.rows[1:]))
    assert longest(alone) == (one, "")


def test_the_page_says_how_far_its_command_gives_it_again(answer: Planned) -> None:
    stopped = provenance(replace(answer, found=replace(answer.found, stopped="interrupt")), "")
    assert "Ctrl-C ended" in stopped and "--out plan.json" in stopped
    assert "To reproduce" in provenance(answer, "") and "--out plan.json" not in provenance(answer, "")


def test_ctrl_c_before_the_first_plan_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(search: Search) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_start", stop)
    page = tmp_path / "page.html"
    code, out, err = asked("--model", "criteo-kaggle", "--gpus", "8", "--out", str(page))
    assert (code, out) == (130, "") and "before there was a plan" in err and not page.exists()
