"""Whole models: operations by hand, every step of a pass in one part, published steps predicted."""

from __future__ import annotations

from collections import Counter

import mlperf_steps
import numpy as np
import pytest

from perfmodel.engine.loads import Exchange
from perfmodel.engine.steps import BACKWARD, FORWARD, WEIGHTS
from perfmodel.engine.training import PARTS, CostedPlan, Dense
from perfmodel.errors import BadInputError
from perfmodel.model.dense import (
    DenseKernel,
    DenseModel,
    StepParts,
    chain,
    cross_macs,
    kernels_time,
    mlp_macs,
    product,
    update_bytes,
)
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, uniform_plan
from perfmodel.schema.dense import ANY, load_dense, load_rates
from perfmodel.schema.workload import Table, TableSet

DCNV2 = DenseModel((13, 512, 256, 128), (1024, 1024, 512, 256, 1), 512, 3)


def test_operations_by_hand() -> None:
    assert mlp_macs((13, 512)) == 6656
    assert mlp_macs((2, 3, 4)) == 18
    assert cross_macs(2, 3, 1) == 12
    small = DenseModel((2, 3), (5, 1), 4, 2)
    assert small.width(7) == 10
    assert small.weights(7) == 6 + 160 + 55
    assert (update_bytes(10, 4, 0), update_bytes(10, 2, 4), update_bytes(0, 2, 4)) == (120, 200, 0)


def test_dlrm_dcnv2_has_16_million_dense_weights() -> None:
    """13-512-256-128; 3 layers of 2 x 3456 x 512; 3456-1024-1024-512-256-1."""
    assert DCNV2.weights(26 * 128) == 170_496 + 10_616_832 + 5_243_136


def test_every_step_is_in_one_part() -> None:
    names = Counter(name for part in PARTS.values() for name in part)
    steps = {step.name for step in (*FORWARD, WEIGHTS, *BACKWARD)}
    assert set(names) == steps | {"handover"}
    assert set(names.values()) == {1}


def tables(count: int) -> PlanTables:
    return PlanTables.of(TableSet("mine", tuple(Table(f"t{i}", 1000, 64, 4.0, "fp32") for i in range(count))))


def test_a_product_reads_and_writes_each_operand_once() -> None:
    assert product(1, 1, 1) == DenseKernel(2, 6)
    assert product(2, 3, 5) == DenseKernel(60, 2 * (6 + 15 + 10))


def test_kernels_are_bound_by_arithmetic_or_memory_and_have_a_floor() -> None:
    """100 FLOP at 10/s x 0.5: 20 s; 60 bytes at 2/s: 30 s; floors of 1 s."""
    fast, wide = DenseKernel(100, 10), DenseKernel(0, 60)
    assert kernels_time([fast, wide], 10, 0.5, 2, 1) == 20 + 30 + 2
    assert kernels_time([], 10, 0.5, 2, 1) == 0
    assert kernels_time([DenseKernel(100, 0)], 10, 0.5, 2, 0) == 100 / 5
    assert kernels_time([DenseKernel(0, 0)], 10, 0.5, 2, 1) == 1


def test_kernels_have_all_operations() -> None:
    """Bottom, two cross layers of two products, two of the top; backward twice as many and as much."""
    small = DenseModel((2, 3), (5, 1), 4, 2)
    kernels = small.kernels(7, 5)
    assert {part: len(products) for part, products in kernels.items()} == {
        "bottom": 1, "bottom_backward": 2, "top": 6, "top_backward": 12,
    }  # fmt: skip
    flops = {part: sum(product.flops for product in products) for part, products in kernels.items()}
    assert flops["bottom"] == 5 * 2 * 6 and flops["top"] == 5 * 2 * (160 + 55)
    assert flops["top_backward"] == 2 * flops["top"]
    assert sum(flops.values()) == 5 * 3 * 2 * small.weights(7)
    assert chain(5, []) == ((), ())
    assert len(DenseModel((2, 3), (5, 1), 4, 0).kernels(7, 5)["top"]) == 2


def parts_of(evaluator: Evaluator, plan: Plan) -> StepParts:
    return CostedPlan.compute(evaluator, plan).sum_parts(Dense.compute(load_dense("dlrm-dcnv2"), evaluator))


def test_parts_add_up_to_the_pass_and_the_dense_layers() -> None:
    """Three forward parts in one, as the kernels say; what is not of them is the pass."""
    three = tables(3)
    evaluator = Evaluator.on("h100-sxm-ib", three, 1024, 16, training=True)
    copy, whole = Placement.of(Scheme(Exchange.DP)), Placement.of(Scheme(Exchange.RB), [3])
    plan = Plan(three, (copy, whole, whole), 16, 8)
    parts, layers = parts_of(evaluator, plan), Dense.compute(load_dense("dlrm-dcnv2"), evaluator)
    rate = load_rates().of("h100-sxm-ib").flops_per_s * load_rates().share_of("Hopper").products
    assert sum(layers.times.values()) > 3 * 2 * DCNV2.weights(192) * 1024 / rate
    assert {name: getattr(parts, name) for name in layers.times} == layers.times
    dense = layers.time_s + parts.dense_reduce + parts.dense_update
    assert parts.serial_time - dense == pytest.approx(evaluator.cost(plan).time_s)
    assert 0 < parts.dp_lookup < parts.lookup
    assert parts.dp_update > 0 and parts.dp_reduce > 0
    communication = parts.keys + parts.forward + parts.backward + parts.dp_reduce
    assert parts.embedding_communication_time == pytest.approx(communication)


def test_copies_alone_have_nothing_else_to_look_up() -> None:
    evaluator = Evaluator.on("h100-sxm-ib", tables(2), 256, 8, training=True)
    parts = parts_of(evaluator, uniform_plan(tables(2), "data-parallel", 8, 8))
    assert parts.lookup == pytest.approx(0, abs=1e-15)
    assert parts.keys == parts.forward == parts.backward == 0
    assert parts.dp_lookup > 0
    alone = parts_of(evaluator, uniform_plan(tables(2), "table-wise", 8, 8))
    assert alone.dp_lookup == alone.dp_update == alone.dp_reduce == 0


def test_a_forward_pass_has_no_backward_parts() -> None:
    evaluator = Evaluator.on("h100-sxm-ib", tables(1), 256, 8)
    plan = uniform_plan(tables(1), "table-wise", 8, 8)
    parts = parts_of(evaluator, plan)
    for name in (
        "backward",
        "update",
        "unpool",
        "dp_reduce",
        "top_backward",
        "bottom_backward",
        "dense_reduce",
        "dense_update",
    ):
        assert getattr(parts, name) == 0, name
    dense = parts.bottom + parts.top
    assert parts.serial_time - dense == pytest.approx(evaluator.cost(plan).time_s)


def test_every_measured_row_is_predicted_or_left_out_by_name() -> None:
    steps = mlperf_steps.steps()
    left_out = {step.gpu for step in steps if step.case is None}
    assert left_out == {"NVIDIA H100-PCIe-80GB", "NVIDIA A40", "NVIDIA L40"}
    assert len(steps) == 53 and len(mlperf_steps.predicted()) == 48


def test_half_of_the_kinds_of_a_generation_are_too_fast_and_machines_are_left_out() -> None:
    kinds, rates = mlperf_steps.kinds(), load_rates()
    shares, left_out = mlperf_steps.shares_by_generation(), mlperf_steps.left_out_shares()
    assert {case.machine for case, _ in kinds} == set(left_out)
    assert {name: rates.share_of(name).products for name in shares} == pytest.approx(shares, abs=0.02)
    assert left_out["h200-sxm-ib"] == pytest.approx(rates.share_of("Hopper").products, rel=0.1)
    hopper = mlperf_steps.fitted_share(lambda case: mlperf_steps.generation_of(case.machine) == "Hopper")
    assert shares["Hopper"] == pytest.approx(hopper, rel=0.01)  # of 21 kinds, whatever others reach
    own = {kind: s for kind, s in kinds.items() if mlperf_steps.generation_of(kind[0].machine) == "Hopper"}
    ratios = [np.log(mlperf_steps.step_s(case, hopper) / time_s) for (case, _), time_s in own.items()]
    assert np.median(ratios) == pytest.approx(0, abs=2e-3)
    assert np.sqrt(np.mean(np.square(ratios))) == pytest.approx(mlperf_steps._KINDS_LOG_SD, abs=0.02)
    alone = mlperf_steps.fitted_share(lambda case: case.machine == "b200-sxm-ib")
    assert alone < shares["Blackwell"] < shares[ANY]  # one kind alone is less sure
    with pytest.raises(BadInputError):
        mlperf_steps.fitted_share(lambda case: False)


def test_steps_of_machines_left_out_are_predicted_within_their_bands() -> None:
    """And the trend with the number of H100 is gone, which our plans and uniform ids had."""
    rows = mlperf_steps.predicted(mlperf_steps.left_out_shares())
    assert (rows["low_s"] <= rows["predicted_s"]).all() and (rows["predicted_s"] <= rows["high_s"]).all()
    assert rows[rows["informs"]]["inside"].mean() > 0.8
    h100 = rows[(rows["machine"] == "h100-sxm-ib") & ~rows["system"].str.startswith("v3.0")]
    assert (h100.groupby("gpus")["ratio"].median() - 1).abs().max() < 0.06
