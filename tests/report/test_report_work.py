"""How much work the page of a model is: counted, for seconds depend on the machine."""

from __future__ import annotations

from functools import lru_cache
from unittest.mock import patch

import pytest

from perfmodel.answer import project_one
from perfmodel.answer.ranking import answer_shardings
from perfmodel.answer.uniform_plans import UniformPlan, UniformPlans
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.schemes import WAYS
from perfmodel.engine.tables import PlanTables
from perfmodel.model import popularity as look_ups
from perfmodel.model.popularity import LookUps, build_popularity
from perfmodel.report.figures.roofline import draw_roofline
from perfmodel.report.figures.subject import Subject
from perfmodel.schema.workload import parse_distribution

ZIPF = parse_distribution("zipf:1.05")
MODEL = "criteo-kaggle"


def test_shards_of_all_ways_are_priced_together() -> None:
    base = project_one(gpus=16, tables=MODEL)
    with patch.object(Evaluator, "count_shards", autospec=True, side_effect=Evaluator.count_shards) as calls:
        assert len(list(answer_shardings(base))) == len(WAYS)
    assert 0 < calls.call_count < len(WAYS)


def test_ways_that_are_priced_together_come_out_as_alone() -> None:
    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load(MODEL), 1024, 16)
    priced = UniformPlans(evaluator, 68e9)
    priced.bound_times(list(WAYS))
    for way in WAYS:
        alone, together = UniformPlans(evaluator, 68e9).find_best(way), priced.find_best(way)
        assert isinstance(alone, UniformPlan) and isinstance(together, UniformPlan)
        assert (together.scheme, together.cost.time_s) == (alone.scheme, alone.cost.time_s)


def test_a_table_of_so_many_rows_is_worked_out_for_all_batches_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = project_one(gpus=16, tables=MODEL, distribution=ZIPF)
    few = lru_cache(maxsize=2)(build_popularity.__wrapped__)
    monkeypatch.setattr(look_ups, "build_popularity", few)
    sizes = {row["working_set_bytes"] for row in draw_roofline(Subject(answer, answer)).data}
    tables, batches = answer.table_count, 3
    assert few.cache_info().misses < tables * len(sizes) * (batches - 1)


def test_rows_that_are_asked_for_once_are_the_same_on_all_numbers_of_gpus() -> None:
    small, large = (LookUps(ZIPF, 1e5, 4, 1024, gpus) for gpus in (8, 64))
    assert small.requested is large.requested
