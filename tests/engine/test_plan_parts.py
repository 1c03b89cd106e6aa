"""Parts that do not divide a table evenly, and more parts than there are rows or columns."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.workload import UNIFORM, Table, TableSet, zipf

TABLES = PlanTables.of(TableSet("mine", (Table("wide", 1000, 128, 4.0, "fp32"), Table("t", 3, 8, 1, "fp32"))))


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator.on("h100-sxm-ib", TABLES, 10, 8)


def test_every_column_part_counts_as_the_widest(evaluator: Evaluator) -> None:
    """128 columns in three parts are 43 + 43 + 42: one column in 129 is counted and not there."""
    G, B, v = 8, 10, 4
    wide = evaluator.count_shards(0, Exchange.RB, 1, 3)
    assert wide.own[Resource.BAGS_SENT] == G * B * 43 * v  # of the GPU with the most
    assert wide.everywhere[Resource.BAGS_RECEIVED] == B * 128 * v  # whole bags arrive
    plans = [uniform_plan(TABLES, "column-wise", G, 8, col_parts=c) for c in (1, 2, 4)]
    sums = {float(evaluator.loads(plan).of(Resource.BAGS_SENT).sum()) for plan in plans}
    assert sums == {G * B * (128 + 8) * v}  # equal parts: exact whatever they are
    plan = uniform_plan(TABLES, "column-wise", G, 8, col_parts=3)
    assert evaluator.loads(plan).of(Resource.BAGS_SENT).sum() == G * B * (129 + 9) * v
    assert evaluator.memory(plan).rows_bytes.sum() == 1000 * 129 * v + 3 * 9 * v


@pytest.mark.parametrize("kind", [Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL, Exchange.UB])
def test_more_row_parts_than_rows_are_refused_not_nan(evaluator: Evaluator, kind: Exchange) -> None:
    said = r"^table 't' cannot be cut so: 8 row parts of 3 rows\.\ngive fewer row parts"
    with pytest.raises(BadInputError, match=said):
        evaluator.count_shards([0, 1], kind, 8, 1)
    fits = evaluator.count_shards(0, kind, 8, 1)
    assert np.isfinite(fits.own).all() and np.isfinite(fits.everywhere).all()


@pytest.mark.parametrize("pooling", [1.0, 32.0])
@pytest.mark.parametrize("rows", [500, 30_000, 4_000_000])
def test_ids_that_are_hardly_skewed_cost_what_uniform_ids_cost(rows: int, pooling: float) -> None:
    found = []
    for ids in (UNIFORM, zipf(1e-6)):
        tables = PlanTables.of(TableSet("mine", (Table("t", rows, 64, pooling),)), ids)
        evaluator = Evaluator.on("h100-sxm-ib", tables, 1024, 16, training=True)
        kinds = np.array(
            [Exchange.DP, Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL, Exchange.UB]
        )
        parts = np.array([1, 4, 16, 16, 8, 16])
        loads = evaluator.count_shards(0, kinds, parts, 1)
        found.append(np.concatenate([loads.own, loads.everywhere], axis=1))
    # skewed ids count a row once that a bag of 32 has twice: 1 % of 500 rows
    np.testing.assert_allclose(found[1], found[0], rtol=0.01, atol=1)
