"""How far a search is: what it has found is told, and it tells of its bound."""

from __future__ import annotations

import math

import pytest

from perfmodel import effort
from perfmodel.cli.plan_progress import PlanProgress
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.searching.search import Search


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written, with a line a hundredth of a second."""
    found: list[str] = []
    monkeypatch.setattr(plan_progress, "on_terminal", lambda: True)
    monkeypatch.setattr(plan_progress, "terminal_columns", lambda _: 100)
    monkeypatch.setattr(plan_progress, "rewrite", lambda text, before="": found.append(text))
    monkeypatch.setattr(plan_progress, "_LINE_EVERY_S", 0.01)
    return found


def test_the_line_is_drawn_whether_or_not_something_is_found(lines: list[str]) -> None:
    progress = PlanProgress(0.01)
    until(lambda: len(lines) > 2)
    assert re.fullmatch(r"searching   \d+ s", lines[0])
    progress(2e-3, 0.0)
    progress(1e-3, 5e-4)  # right after the one before: it is not lost
    until(lambda: lines[-1].startswith("best 1.00 ms, no listed plan is below 500 µs"))
    before = len(lines)
    until(lambda: len(lines) > before + 2)
    progress.tell("what would change it")
    until(lambda: lines[-1].startswith("what would change it   "))
    progress.clear()
    ended = len(lines)
    a_moment()
    assert lines[-1] == "" and len(lines) == ended


def test_on_a_narrow_terminal_the_words_are_cut_and_not_the_time(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_progress, "terminal_columns", lambda _: 60)
    progress = PlanProgress(60.0, "comparing them over skew, batch and table size (--no-map leaves this out)")
    assert re.fullmatch(r"comparing them over skew, batch and table size \(--no…   0 s", progress.text())
    assert len(progress.text()) == 59
    progress.clear()


def test_a_search_tells_of_its_bound_while_its_plan_stays() -> None:
    told: list[tuple[float, float]] = []

    def watch(best_s: float, bound_s: float) -> None:
        told.append((best_s, bound_s))
        if len({best_s for best_s, _ in told}) < len(told) and bound_s > 0:
            raise KeyboardInterrupt  # seen: there is no need for more

    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load("mlperf-dlrm-dcnv2"), 1024, 8)
    assert Search(evaluator, 20e9, effort_s=60, watch=watch).run().stopped == "interrupt"
