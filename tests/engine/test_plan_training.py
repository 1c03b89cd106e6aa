"""The cost of plans that train: what the backward pass and the updates of rows add, some of it by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_plan_cost import MACHINE, MIXED, mixed_plan, tables_of

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource


def test_training_adds_a_backward_pass_and_leaves_the_forward_alone() -> None:
    forward, training = (Evaluator.on(MACHINE, MIXED, 100, 16, training=t) for t in (False, True))
    plan = mixed_plan(MIXED, np.random.default_rng(9))
    one, both = forward.cost(plan), training.cost(plan)
    first = both.rows[: len(one.rows)]
    assert [replace(row, share=0) for row in first] == [replace(row, share=0) for row in one.rows]
    backward = {row.name: row for row in both.rows[len(one.rows) :]}
    rows = {row.name: row for row in one.rows}
    for back, there in {
        "all_to_all_gradients": "all_to_all_bags",
        "all_to_all_sparse_gradients": "all_to_all_sparse_bags",
        "all_to_all_gradients_across": "all_to_all_across",
    }.items():  # the transpose: as many bytes, as much time
        assert (backward[back].payload_bytes, backward[back].time_s) == (
            rows[there].payload_bytes,
            rows[there].time_s,
        )
    for back, there in {
        "all_gather_gradients": "reduce_scatter_bags",
        "all_gather_inside": "reduce_scatter_inside",
        "all_gather_across": "reduce_scatter_across",
    }.items():
        assert (
            backward[back].payload_bytes == rows[there].payload_bytes
            and backward[back].collective == "all_gather"
        )


def test_backward_pass_by_hand() -> None:
    """Two tables of one row: table 0 copied, table 1 on rank 1; 10 samples of 2 and 3 rows a rank."""
    tables = tables_of((1, 64, 2.0), (1, 128, 3.0))
    plan = Plan(tables, (Placement.of(Scheme(Exchange.DP)), Placement.of(Scheme(Exchange.RB), [1])), 2, 2)
    evaluator = Evaluator.on(MACHINE, tables, 10, 2, optimizer="rowwise-adagrad", training=True)
    loads = evaluator.loads(plan)
    assert loads.of(Resource.COPIED_GRADIENTS).tolist() == [256, 256]
    assert loads.of(Resource.SORT).tolist() == [20 * 32, (20 + 60) * 32]  # one digit
    # gradients read for every look-up with its id, one row and its state read and written
    copy = 20 * (256 + 8) + 2 * (256 + 4) + 2 * 256
    shard = 60 * (512 + 8) + 2 * (512 + 4)
    assert loads.of(Resource.UPDATE_L2).tolist() == pytest.approx([copy, copy + shard])
    names = [row.name for row in evaluator.step(loads).rows]
    assert names[-4:] == ["all_to_all_gradients", "sort_lookups", "all_reduce_copies", "update_rows"]


def test_gradients_of_unique_rows_by_hand() -> None:
    tables = tables_of((1, 128, 5.0), dtype="fp16")
    evaluator = Evaluator.on(MACHINE, tables, 10, 2, training=True)
    loads = evaluator.loads(Plan(tables, (Placement.of(Scheme(Exchange.UB), [1]),), 2, 2))
    assert loads.of(Resource.ACCUMULATE_L2).tolist() == [50 * (512 + 8) + 512] * 2
    assert loads.of(Resource.ROW_GRADIENTS_SENT).tolist() == [512, 512]  # fp32, though rows are fp16
    assert loads.of(Resource.ROW_GRADIENTS_RECEIVED).tolist() == [0, 1024]
    assert loads.of(Resource.UPDATE_L2).tolist() == [0, 2 * (512 + 8) + 2 * 256]


def test_rows_that_two_ranks_touch_are_updated_once() -> None:
    """All 10 rows are touched by each rank: 5 on each of two holders, not 10."""
    tables = tables_of((10, 128, 100.0))
    evaluator = Evaluator.on(MACHINE, tables, 100, 2, training=True)
    loads = evaluator.loads(Plan(tables, (Placement.of(Scheme(Exchange.RB, 2), [0, 1]),), 2, 2))
    one_row, lookups = 2 * 512, 2 * 100 * 100 / 2
    wanted = lookups * (512 + 8) + 5 * one_row
    assert loads.of(Resource.UPDATE_L2).tolist() == pytest.approx([wanted] * 2)
    found = tables_of((1000, 128, 1.0))
    evaluator = Evaluator.on(MACHINE, found, 100, 4, training=True)
    loads = evaluator.loads(Plan(found, (Placement.of(Scheme(Exchange.RB), [0]),), 4, 4))
    rows = 1000 * (1 - (1 - 1 / 1000) ** 400)  # of all four ranks' look-ups
    assert loads.of(Resource.UPDATE_L2)[0] == pytest.approx(400 * (512 + 8) + rows * one_row)
