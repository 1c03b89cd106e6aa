"""What finding equal ids costs: a sort, a hash table, and what the difference leaves undecided."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sort_model

from perfmodel.answer import project_one
from perfmodel.answer.ranking import answer_shardings
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Plan
from perfmodel.engine.steps import STEPS
from perfmodel.schema.priors import load_kernel_constants

MACHINE = "h100-sxm-ib"


def ways(gpus: int = 152, **asked: Any) -> Any:
    return list(answer_shardings(project_one(machine=MACHINE, table_bytes=10e12, gpus=gpus, **asked)))


def test_constants_are_those_of_the_shipped_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    """``benchmarks/sort_model.py`` prints what ``data/kernels/kernel_model.toml`` has."""
    assert sort_model.main([]) == 0
    said, value = capsys.readouterr().out, load_kernel_constants().value
    for name, keys in (
        ("sort", ("floor_s", "digit_s")),
        ("torch_unique", ("floor_s",)),
        ("hash", ("floor_s",)),
    ):
        line = next(line for line in said.splitlines() if line.startswith(name))
        numbers = [float(x) for x in re.findall(r"[\d.]+", line)]
        known = [1e6 * value(f"{name}_{key}") for key in keys] + [value(f"{name}_memory_fraction")]
        assert numbers == pytest.approx(known, rel=1e-3), name
    assert [float(x) for x in re.findall(r"([\d.]+) % \(median\)", said)] < [5, 20, 40]


@pytest.mark.parametrize(
    ("batch", "hash_s", "unique_s"),
    # 27.6 us + n 200 / (0.344 3.35 TB/s), and 139.8 us + n 200 / (0.285 3.35 TB/s) of 32 ids a sample
    [(1024, 33.3e-6, 146.7e-6), (16_384, 118.6e-6, 249.6e-6)],
)
def test_deduplicating_lies_between_a_hash_table_and_torch_unique(
    batch: int, hash_s: float, unique_s: float
) -> None:
    found = next(each for each in ways(batch=batch) if each.sharding == "row-wise-ub")
    step = next(row for row in found.steps if row.name == "deduplicate")
    assert step.payload_bytes == batch * 32 * 200
    assert (step.low_s, step.high_s) == pytest.approx((hash_s, unique_s), rel=2e-3)
    assert step.low_s < step.time_s < step.high_s and str(step.evidence) == "transferred"


def test_the_backward_sorts_as_many_digits_as_the_rows_of_a_rank_have() -> None:
    sorts = {name for name, step in STEPS.items() if step.sorts}
    assert sorts == {"deduplicate", "deduplicate_requests", "sort_lookups"}
    found = next(each for each in ways() if each.sharding == "row-wise-ub").plan
    tables = found.plan.tables
    evaluator = Evaluator.on(MACHINE, tables, 1024, 152, training=True)
    assert evaluator.model.sort_digits == 4  # 78 125 M rows / 152 = 514 M: 29 bits
    plan = Plan(tables, found.plan.placements, 152, evaluator.domain)
    rows = {row.name: row for row in evaluator.cost(plan).rows}
    for name, alone in (("deduplicate", False), ("deduplicate_requests", False), ("sort_lookups", True)):
        floor, rate = evaluator.basis.list_sorts(4, alone=alone)[1]
        assert rows[name].time_s == pytest.approx(floor + rows[name].payload_bytes / rate)
    assert evaluator.basis.list_sorts(4, alone=True)[1][0] == pytest.approx(14.8e-6 + 4 * 11.2e-6)
    loads = evaluator.loads(plan).most
    assert float(evaluator.times.estimate(loads)) == pytest.approx(evaluator.time_passes(loads)[0], rel=2e-3)
