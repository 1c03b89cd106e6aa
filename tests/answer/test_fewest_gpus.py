"""The GPUs that tables need: a brute force over all numbers that one can have."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perfmodel.answer import Answer, project_one
from perfmodel.answer.ranking import RUN, answer_shardings, find_enough, plan_shardings, rank_on_fewest
from perfmodel.answer.uniform_plans import UniformPlans
from perfmodel.model.capacity import gpus_needed, list_allowed_gpus

TABLES = str(Path(__file__).parents[1] / "cases" / "400-tables.csv")
MANY = {"table_bytes": 10e12, "table_count": 300, "dim": 128, "pooling": 20, "machine": "h200-sxm-ib"}
ASKED: tuple[dict[str, Any], ...] = (
    MANY,
    MANY | {"batch": 8192},
    {"table_bytes": 4e12, "table_count": 40, "batch": 16384, "dim": 64},  # parts in powers of two leave gaps
    {"table_bytes": 300e9, "table_count": 9, "batch": 20_000, "dim": 256},  # inside a node
    {"table_bytes": 3e12, "table_count": 150, "dim": 64, "machine": "gb200-nvl72", "batch": 60_000},
    {"tables": TABLES, "machine": "h200-sxm-ib", "batch": 8192},
    {"tables": "mlperf-dlrm-dcnv2", "batch": 300_000},
)


def fits(base: Answer, ways: tuple[str, ...] = RUN) -> bool:
    return any(each.fits for each in answer_shardings(base, ways))


def brute_force(asked: dict[str, Any], base: Answer, ways: tuple[str, ...] = RUN) -> int | None:
    """The smallest number that one of the ways fits, of all that one can have up to four times as many."""
    count = base.gpu_count
    least = int(gpus_needed(count.table_bytes, count.usable_bytes, 0.0))
    for gpus in list_allowed_gpus(least, 4 * base.gpus, count.gpus_per_node):
        if fits(project_one(**asked, gpus=gpus), ways):
            return gpus
    return None


@pytest.mark.parametrize("asked", ASKED)
def test_the_best_way_is_on_the_fewest_gpus(asked: dict[str, Any]) -> None:
    base = project_one(**asked)
    found = rank_on_fewest(base).base
    assert found.gpus == brute_force(asked, base)
    assert found.gpu_count.needed <= found.gpus and found.totals["gpus_needed"] <= found.gpus
    given = rank_on_fewest(project_one(**asked, gpus=found.gpus))
    assert given.best and given.answer.gpu_count.needed <= found.gpus


@pytest.mark.parametrize("way", ["column-wise", "row-wise", "grid", "table-row-wise"])
@pytest.mark.parametrize("asked", ASKED[1:5])
def test_a_way_that_is_asked_for_is_on_the_fewest_gpus(asked: dict[str, Any], way: str) -> None:
    base = project_one(**asked)
    found, good = find_enough(base, fits(base, (way,)), partial(fits, ways=(way,)), bool, (way,))
    assert (found.gpus if good else None) == brute_force(asked, base, (way,))


@pytest.mark.parametrize("asked", ASKED)
def test_numbers_that_are_passed_over_fit_nothing(asked: dict[str, Any]) -> None:
    base = project_one(**asked)
    count, out = base.gpu_count, 0
    for gpus in list_allowed_gpus(count.for_rows, 2 * base.gpus, count.gpus_per_node)[:8]:
        more = project_one(**asked, gpus=gpus)
        for way in RUN:
            if not UniformPlans(plan_shardings(more).evaluator, count.usable_bytes).has_room([way]):
                out += 1
                assert not fits(more, (way,)), (gpus, way)
    assert out
