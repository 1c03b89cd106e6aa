"""How far a search came, and where a closed form is off, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from perfmodel.onechip.answer import COMPARED, ChipAnswer, answer_on
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.replay import Replayed
from perfmodel.onechip.search import Searched, search
from perfmodel.onechip.simulate import Simulated
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.report.onechip.mapping_page import chip_card
from perfmodel.report.onechip.mapping_text import mapping_text, short_of_time
from perfmodel.report.onechip.simulated_text import off_words, owned_words
from perfmodel.schema.chip import load_chip
from perfmodel.schema.workload import Table, TableSet


@cache
def answer() -> ChipAnswer:
    tables = PlanTables.of(TableSet("mine", (Table("small", 1000, 16, 1.0), Table("large", 10**6, 16, 4.0))))
    return answer_on(load_chip("ascend-910").with_overrides({"cores": 4}), tables, 256, compared=())


def ended(stopped: str, bound: float) -> ChipAnswer:
    """A search of half a second that ended with a bound that is so much of the time."""
    found = answer()
    mapped = replace(found.mapped, seconds=0.5, bound_s=bound * found.time_s)
    return replace(found, mapped=mapped, stopped=stopped)


def test_a_search_that_ended_far_from_the_bound_says_what_to_ask_for() -> None:
    said = short_of_time(ended("time", 0.5))
    assert said.startswith("The time limit ended the search after 500 ms") and "--time-limit 5s" in said
    assert said in " ".join(mapping_text(ended("time", 0.5)).split("\n\n")[0].split())
    assert said in chip_card(ended("time", 0.5)).notes


def test_nothing_is_said_of_a_search_that_was_at_an_end_or_near_the_bound() -> None:
    assert not short_of_time(ended("no improvement", 0.5))
    assert not short_of_time(ended("time", 0.95))


def test_a_mapping_that_is_not_simulated_is_said_to_be_none() -> None:
    found = ended("time", 0.5)
    assert "found by a search of 500 ms; --time-limit 5s" in owned_words(found)[0]
    assert owned_words(replace(found, stopped="no improvement")) == []
    slow = replace(found, symmetric=True, owned_s=3 * found.best_symmetric.time_s)
    assert "not simulated, because none was found" in owned_words(slow)[0]
    assert "--time-limit 5s may find one." in owned_words(slow)[0]
    assert "Time was up" not in owned_words(replace(slow, stopped="no improvement"))[0]


def test_a_robust_search_is_one_whichever_of_its_ids_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same costs in the same order, and the cuts are those of the ids that are asked for."""
    seen: list[tuple[list[float], int]] = []

    def watched(costs: Sequence[ChipCost], **options: Any) -> Searched:
        seen.append(([float(cost.popular[0].share(0, 1)) for cost in costs], options["of"]))
        return search(costs, **options)

    chip, tables = answer().cost.chip, answer().tables  # a search of its own, before any is watched
    monkeypatch.setattr("perfmodel.onechip.answer.search", watched)
    for ids in COMPARED:
        found = answer_on(chip, tables, 256, ids, robust=True, time_limit_s=0.01)
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
