"""How far a search came, in words."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import cache, partial

import pytest

from perfmodel.effort import Budget, Work
from perfmodel.engine.tables import PlanTables
from perfmodel.onechip.answer import ChipAnswer, answer_on, cost_on
from perfmodel.onechip.cuts import cuts_of
from perfmodel.onechip.mapper import Mapper
from perfmodel.onechip.mapping import mapping_of
from perfmodel.onechip.search import search
from perfmodel.report.onechip.mapping_text import mapping_text, more_effort_words
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import zipf
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_fraction


@cache
def answer() -> ChipAnswer:
    tables = PlanTables.of(TableSet("mine", (Table("small", 1000, 16, 1.0), Table("large", 10**6, 16, 4.0))))
    return answer_on(load_chip("ascend-910").with_overrides({"cores": 4}), tables, 256)


def ended(stopped: str, bound: float) -> ChipAnswer:
    """A search that ended with a bound that is so much of the time, after 40 % of the work."""
    found = answer()
    searched = replace(found.searched, bound_s=bound * found.time_s)
    return replace(found, searched=searched, stopped=stopped, done=0.4)


def test_a_search_that_ended_far_from_the_bound_says_what_to_ask_for() -> None:
    said = "The effort was spent: --effort thorough may find a faster mapping."
    assert more_effort_words(ended("effort", 0.5)) == said
    assert said in " ".join(mapping_text(ended("effort", 0.5)).split("\n\n")[0].split())


def test_nothing_is_said_of_a_search_that_was_at_an_end_or_near_the_bound() -> None:
    thorough = replace(ended("effort", 0.5), effort="thorough")
    for found in (ended("no improvement", 0.5), ended("effort", 0.95), thorough):
        assert more_effort_words(found) == ""


def test_a_search_that_was_cut_short_says_so_first() -> None:
    said = "stopped by --time-limit after 40.0 % of the work: another run may find another plan"
    assert mapping_text(ended("time-limit", 0.95)).splitlines()[1].strip() == said
    assert "another run" not in mapping_text(ended("effort", 0.5))


def test_a_mapping_is_changed_where_its_slices_wait() -> None:
    """Rows that are spread wait once a slice: what is best is not what is best for the mapper."""
    shapes = ((3234, 16, 8.0), (92, 32, 5.0), (844, 32, 7.0), (20_593, 32, 1.0), (139, 16, 4.0))
    tables = PlanTables.of(TableSet("mine", tuple(Table(f"t{at}", *one) for at, one in enumerate(shapes))))
    cost = cost_on(load_chip("ascend-910").with_overrides({"cores": 7}), tables, 64, zipf(1.05))
    cuts = cuts_of(cost)
    first = mapping_of(cuts, Mapper(cuts.choices).run()).batch(cost).seconds
    found = search(cost, budget=Budget(Work(), 1.0), seed=0)
    assert found.bound_s <= found.seconds < 0.9 * first
    assert found.tried > 20 and found.mapping.batch(cost).seconds == found.seconds


class Ticking:
    """A clock of which each look takes so long [s]."""

    def __init__(self, tick_s: float) -> None:
        self.tick_s, self.now_s, self.looks = tick_s, 0.0, 0

    def __call__(self) -> float:
        self.now_s, self.looks = self.now_s + self.tick_s, self.looks + 1
        return self.now_s


def test_a_time_limit_cuts_a_search_short_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the looks at the clock that the whole search takes."""
    chip, tables, whole = load_chip("ascend-910"), answer().tables, Ticking(0.0)
    for clock in (whole, Ticking(1.0)):
        monkeypatch.setattr("perfmodel.onechip.answer.Budget", partial(Budget, clock=clock))
        limit_s = max(1, whole.looks // 2)
        found = answer_on(chip, tables, 256, effort="quick", time_limit_s=limit_s)
    assert whole.looks > 20
    assert (found.stopped, found.to_dict()["stopped"]) == ("time-limit", "time-limit")
    assert 0 < found.done < 1
    assert f"stopped by --time-limit after {format_fraction(found.done)} of the work" in mapping_text(found)


def test_no_clock_decides_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same document and text by clocks a hundred times as fast, and with a cap that is far off."""
    chip, tables = load_chip("h100-sxm").with_overrides({"cores": 16}), answer().tables
    told = []
    for factor in (1.0, 100.0):
        for name in ("monotonic", "perf_counter", "process_time", "time"):
            fast = partial(lambda clock, factor: factor * clock(), getattr(time, name), factor)
            monkeypatch.setattr(time, name, fast)
        for limit_s in (None, 1e6):
            found = answer_on(chip, tables, 4096, zipf(1.05), effort="quick", time_limit_s=limit_s)
            assert found.stopped == "effort"
            told.append((json.dumps(found.to_dict()), mapping_text(found)))
        monkeypatch.undo()
    assert told[1:] == told[:1] * 3
