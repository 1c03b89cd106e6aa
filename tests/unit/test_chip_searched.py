"""How far a search came, and where a closed form is off, in words."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from perfmodel.effort import Budget
from perfmodel.onechip.answer import COMPARED, ChipAnswer, answer_on
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.replay import Replayed
from perfmodel.onechip.search import Searched, search
from perfmodel.onechip.simulate import Simulated
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.report.onechip.mapping_page import chip_card
from perfmodel.report.onechip.mapping_text import mapping_text, more_effort_words
from perfmodel.report.onechip.simulated_text import off_words, owned_words
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import zipf
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_fraction


@cache
def answer() -> ChipAnswer:
    tables = PlanTables.of(TableSet("mine", (Table("small", 1000, 16, 1.0), Table("large", 10**6, 16, 4.0))))
    return answer_on(load_chip("ascend-910").with_overrides({"cores": 4}), tables, 256, compared=())


def ended(stopped: str, bound: float) -> ChipAnswer:
    """A search that ended with a bound that is so much of the time, after 40 % of the work."""
    found = answer()
    return replace(found, owned_bound_s=bound * found.time_s, stopped=stopped, done=0.4)


def test_a_search_that_ended_far_from_the_bound_says_what_to_ask_for() -> None:
    said = "The effort was spent: --effort thorough may find a faster mapping."
    assert more_effort_words(ended("effort", 0.5)) == said
    assert said in " ".join(mapping_text(ended("effort", 0.5)).split("\n\n")[0].split())
    assert said in chip_card(ended("effort", 0.5)).notes
    assert owned_words(ended("effort", 0.5)) == [f"Cores own tables. {said}"]


def test_nothing_is_said_of_a_search_that_was_at_an_end_or_near_the_bound() -> None:
    thorough = replace(ended("effort", 0.5), effort="thorough")
    for found in (ended("no improvement", 0.5), ended("effort", 0.95), thorough):
        assert more_effort_words(found) == "" and owned_words(found) == []


def test_a_mapping_that_is_not_simulated_is_said_to_be_none() -> None:
    found = ended("effort", 0.5)
    slow = replace(found, symmetric=True, owned_s=3 * found.best_symmetric.time_s)
    assert "not simulated, because none was found" in owned_words(slow)[0]
    assert owned_words(slow)[0].endswith("--effort thorough may find a faster mapping.")
    assert "effort" not in owned_words(replace(slow, stopped="no improvement"))[0]


def test_a_search_that_was_cut_short_says_so_first() -> None:
    said = "stopped by --time-limit after 40.0 % of the work: another run may find another plan"
    assert mapping_text(ended("time-limit", 0.95)).splitlines()[1].strip() == said
    assert said in chip_card(ended("time-limit", 0.95)).notes
    assert "another run" not in mapping_text(ended("effort", 0.5))


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
        found = answer_on(chip, tables, 256, effort="quick", time_limit_s=limit_s, compared=())
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


def test_a_robust_search_is_one_whichever_of_its_ids_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same costs in the same order, and the cuts are those of the ids that are asked for."""
    seen: list[tuple[list[float], int]] = []

    def watched(costs: Sequence[ChipCost], **options: Any) -> Searched:
        seen.append(([float(cost.popular[0].share(0, 1)) for cost in costs], options["of"]))
        return search(costs, **options)

    chip, tables = answer().cost.chip, answer().tables  # a search of its own, before any is watched
    monkeypatch.setattr("perfmodel.onechip.answer.search", watched)
    for ids in COMPARED:
        found = answer_on(chip, tables, 256, ids, robust=True, effort="quick")
        assert found.ids == ids and found.cuts.cost is found.cost
    assert [at for _, at in seen] == [0, 1, 2]
    assert seen[0][0] == seen[1][0] == seen[2][0]


def replayed(way: str, predicted_s: float) -> Replayed:
    return Replayed("t", way, predicted_s, Simulated(1.0, np.ones(1), 0.0, np.zeros(1), 0, 0))


def test_a_closed_form_that_is_off_is_named() -> None:
    """Predictions of 1.3 and 0.5 where 1 is simulated; 1.2 is near enough."""
    said = off_words([replayed("GM", 1.3), replayed("L1", 1.2), replayed("GM-UB", 0.5)])
    assert said == ["The closed form is off by more than 25.0 %: use the simulated time of t GM-UB, t GM."]
    assert off_words([replayed("L1", 1.2), Replayed("t", "GM", 1.0, None)]) == []
