"""The search: it finds what can be counted by hand, keeps its books, and says the same twice."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.options import options_of
from perfmodel.plan.search import Found, Search
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def tables_of(*shapes: tuple[int, int, float]) -> PlanTables:
    """Tables of (rows, dim, pooling)."""
    return PlanTables.of(TableSet("mine", tuple(Table(f"t{i}", *shape) for i, shape in enumerate(shapes))))


def searched(tables: PlanTables, gpus: int, limit_bytes: float = 80e9, seed: int = 0) -> Found:
    evaluator = Evaluator.on(MACHINE, tables, 1024, gpus)
    return Search(evaluator, limit_bytes, seed=seed, time_limit_s=20).run()


def test_tables_that_fit_everywhere_are_copied() -> None:
    found = searched(tables_of((1000, 64, 10), (2000, 32, 5)), 16)
    assert [p.sharding(16, 8) for p in found.plan.placements] == ["data-parallel"] * 2
    assert found.gap == pytest.approx(0, abs=1e-3)


def test_a_plan_fits_and_is_not_below_its_bound() -> None:
    found = searched(tables_of((10**6, 64, 10), (10**6, 64, 5), (10**6, 128, 1)), 8, limit_bytes=400e6)
    assert found.memory.total_bytes.max() <= 400e6
    assert 0 < found.bound_s <= found.cost.time_s


def test_a_table_that_fits_nowhere_is_named_with_what_is_too_much() -> None:
    evaluator = Evaluator.on(MACHINE, tables_of((8000, 1, 1)), 16, 8)
    with pytest.raises(
        BadInputError, match=r"table 't0' fits nowhere: .* needs 4 kB, 2 kB more than the 2 kB"
    ):
        options_of(evaluator, 2000)


def test_two_searches_with_one_seed_find_one_plan() -> None:
    tables = PlanTables.load("mlperf-dlrm-dcnv2")
    first, second = (searched(tables, 8, seed=3) for _ in range(2))
    for one, other in zip(first.plan.placements, second.plan.placements, strict=True):
        assert one.scheme == other.scheme
        np.testing.assert_array_equal(one.ranks, other.ranks)
