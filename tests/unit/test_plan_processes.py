"""Processes that search together: what each does, what they tell each other, and what is left of them."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cli.plan_options import processes_of
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.searching import search as plan_search
from perfmodel.plan.searching import shared_search
from perfmodel.plan.searching.found import Found
from perfmodel.plan.searching.helping import Helping, known
from perfmodel.plan.searching.messages import HelperQuestion, HelperTask, KnownPlan, Line, News
from perfmodel.plan.searching.packing import Packing
from perfmodel.plan.searching.search import Search
from perfmodel.plan.searching.shared_search import SharedSearch, tasks

LIMIT = 68e9
GAP_OPEN = ("embark-t180", 512, 16)  # no search closes this gap in some seconds


def evaluator() -> Evaluator:
    tables, batch, gpus = GAP_OPEN
    return Evaluator.on("h100-sxm-ib", PlanTables.load(tables), batch, gpus)


def begun(seconds: float) -> Search:
    """A search that knows a plan."""
    search = Search(evaluator(), LIMIT, time_limit_s=seconds)
    search.starts.quick()
    assert search.best is not None
    return search


def question(search: Search, task: HelperTask, seconds: float) -> HelperQuestion:
    return HelperQuestion(
        *(task, search.evaluator, search.options, search.limit_bytes),
        every=task == HelperTask.EVERY,
        allowed=None,
        kinds=[],
        seed=1,
        seconds=time.process_time() + seconds,
        clock=time.process_time,
        best=known(search.best, search.best_s),
    )


def lines() -> tuple[Line, Line]:
    """Both ends."""
    (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
    ends = ((read_here, write_here), (read_there, write_there))
    here, there = (Line(os.fdopen(r, "rb"), os.fdopen(w, "wb")) for r, w in ends)
    return here, there


def helped(asked: HelperQuestion) -> list[News]:
    """What a helper tells that runs in this process."""
    other, line = lines()
    Helping(asked, line).help(asked.task)
    line.end()
    other.ended(10)
    return other.news()


def state_of(search: Search, plan: KnownPlan) -> Packing:
    return Packing.placed(search.evaluator, search.options, LIMIT, plan.option, plan.ranks)


@given(others=st.integers(1, 12), every=st.booleans())
def test_every_helper_has_a_task_and_all_bounds_that_are_wanted_are_raised(others: int, every: bool) -> None:
    found = tasks(others, every=every)
    assert len(found) == others
    assert (HelperTask.EVERY in found) == (every and others > 1)
    assert (HelperTask.LISTED in found) != ({HelperTask.WHOLE, HelperTask.ROOMS} <= set(found))
    assert len(set(found) - {HelperTask.PLANS}) == len([task for task in found if task != HelperTask.PLANS])


@pytest.mark.parametrize("task", list(HelperTask))
def test_a_helper_tells_of_bounds_that_rise_and_of_better_plans(task: HelperTask) -> None:
    search = begun(1.0)
    news = helped(question(search, task, 0.7))
    assert news[-1].done and not any(each.done for each in news[:-1])
    told = [each for each in news if each.best is None and not each.done]
    best_s = min([search.best_s, *(each.best.time_s for each in news if each.best is not None)])
    assert told
    bounds = np.array([(each.bound_s, each.every_s) for each in told]).reshape(-1, 2)
    assert (np.diff(bounds, axis=0) >= 0).all()
    assert (bounds <= best_s).all()
    assert bounds[:, 1].any() == (task == HelperTask.EVERY)
    for each in news:
        if each.best is not None:
            state = state_of(search, each.best)
            assert state.fits
            assert state.time_s == pytest.approx(each.best.time_s, rel=1e-9)
            assert each.best.time_s < search.best_s


def test_a_helper_ends_when_it_is_told_and_takes_a_better_plan() -> None:
    search = begun(1.0)
    asked = question(search, HelperTask.PLANS, 60.0)
    other, line = lines()
    helper = Helping(asked, line)
    other.tell(News(replace(asked.best, time_s=asked.best.time_s / 2)))  # it is priced here
    other.tell(News(done=True))
    line.ended(10)
    began = time.monotonic()
    helper.help(HelperTask.PLANS)
    assert time.monotonic() - began < 10
    assert helper.best_s == pytest.approx(search.best_s)


@pytest.fixture
def cpu_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has its seconds, however many others there are, and how slow the first plans are."""
    monkeypatch.setattr(plan_search, "time", SimpleNamespace(monotonic=time.process_time))
    monkeypatch.setattr(shared_search, "_LEAST_S", 0.0)


@pytest.mark.usefixtures("cpu_seconds")
def test_processes_raise_bounds_that_nobody_raises_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does this process change plans meanwhile: its seconds would be over before busy helpers begin."""
    for name in ("_bound", "_widen", "_anneal"):
        monkeypatch.setattr(Search, name, lambda search, *words: None)
    search = SharedSearch(evaluator(), LIMIT, time_limit_s=4, processes=3)
    found = search.run()
    assert search.bounds is not None and search.bounds.every is not None
    at_once_s, at_once_every_s = search.bounds.listed.bound_s, search.bounds.every.bound_s
    assert at_once_s < found.bound_s <= found.cost.time_s
    assert found.all_plans_s is not None and at_once_every_s < found.all_plans_s <= found.bound_s
    assert found.stopped in ("time", "no improvement")
    assert found.processes == 3
    assert all(helper.process.returncode is not None for helper in search.helpers)


@pytest.mark.usefixtures("cpu_seconds")
def test_a_search_goes_on_alone_where_a_process_is_lost(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        shared_search, "_PROGRAM", "import pickle, sys; pickle.load(sys.stdin.buffer); nothing"
    )
    search = SharedSearch(evaluator(), LIMIT, time_limit_s=2.5, processes=2)
    found = search.run()
    assert capfd.readouterr().err == ""
    assert search.bounds is not None and search.bounds.listed.solved > 0
    assert 0 < found.bound_s <= found.cost.time_s
    assert (search.lost, found.processes) == (1, 1)


@pytest.mark.usefixtures("cpu_seconds")
def test_a_search_raises_the_bounds_that_helpers_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it raise those that they do."""
    raised: list[str] = []
    for name in ("_bound", "_widen"):
        monkeypatch.setattr(Search, name, lambda search, *words, name=name: raised.append(name))
    search = begun(5.0)
    shared = SharedSearch(search.evaluator, LIMIT, time_limit_s=5, options=search.options, processes=2)
    shared.bounds = shared._bounds()
    shared.bounds.heard(shared.bounds.listed.bound_s / 2, 0.0)
    shared._bound(1.0, 0.0)
    shared._widen(1.0)
    assert raised == ["_bound", "_widen"]
    shared.best_s = 1.0
    shared.bounds.heard(0.9, 0.8)
    shared._bound(1.0, 0.0)
    shared._widen(1.0)
    assert raised == ["_bound", "_widen"]


def test_there_are_no_more_processes_than_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for cores, asked, expected in ((2, None, 2), (64, None, 4), (64, 32, 32), (2, 2, 2), (2, 8, 2)):
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)), raising=False
        )
        assert processes_of(asked) == expected
    assert capsys.readouterr().err.strip() == "--processes 8: 2 cores, so as many processes."


@pytest.mark.parametrize(("processes", "seconds"), [(1, 3.0), (4, 1.0)])
def test_one_process_or_little_time_is_a_search_alone(
    monkeypatch: pytest.MonkeyPatch, processes: int, seconds: float
) -> None:
    monkeypatch.setattr(SharedSearch, "_start_helpers", None)
    rest: list[Search] = []
    monkeypatch.setattr(Search, "_rest", lambda search: rest.append(search))
    search = SharedSearch(evaluator(), LIMIT, time_limit_s=seconds, processes=processes)
    assert isinstance(search.run(), Found)
    assert rest == [search]


def test_what_was_priced_already_can_be_sent() -> None:
    """Functions of the steps, which are made when they are asked for, cannot."""
    here = evaluator()
    loads = np.full((1, begun(1.0).options.own.shape[1]), 1e6)
    before = here.step_times(loads)
    assert pickle.loads(pickle.dumps(here)).step_times(loads) == pytest.approx(before, rel=1e-12)
