"""The figure of plans over numbers of GPUs: the numbers of its plans, recounted, and their knee."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfmodel.plan.as_projection import compared, evaluator_of
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.plan.scaling import knee_of
from perfmodel.plan.searching.search import Search
from perfmodel.plan.sizes import Size
from perfmodel.project import project_one
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.plan_scaling import plan_scaling

MODEL = "criteo-kaggle"


def sizes(numbers: Sequence[int], model: str | None = MODEL) -> list[Size]:
    found = []
    for gpus in numbers:
        asked = {"tables": model} if model else {"table_bytes": 1e12}
        base = project_one(gpus=gpus, **asked)
        found.append(Size(base.gpu_count.table_bytes, base, tuple(compared(base))))
    return found


def test_each_point_is_a_plan() -> None:
    block = plan_scaling(sizes([16, 2, 4]), "perfmodel plan --again")
    assert isinstance(block, Block)
    numbers, rates = [row["gpus"] for row in block.data], []
    assert numbers == [2, 4, 16]
    for row in block.data:
        base = project_one(gpus=row["gpus"], tables=MODEL)
        e = evaluator_of(base, PlanTables.load(MODEL))
        plan = Search(e, base.gpu_count.usable_bytes, effort_s=float("inf")).constructed()
        time_s = e.cost(plan).time_s
        assert row["time_s"] == pytest.approx(time_s) and row["low_s"] <= time_s <= row["high_s"]
        rates.append(base.work.batch[0] * row["gpus"] / time_s)
        assert row["samples_per_s"] == pytest.approx(rates[-1]) and rates[-1] >= row["alike_samples_per_s"]
    whole, each = (switch.traces["y"] for switch in block.switches)
    assert whole[0] == pytest.approx(rates)
    assert each[0] == pytest.approx([rate / n for rate, n in zip(rates, numbers, strict=True)])
    assert whole[2] == pytest.approx([rates[0] * n / 2 for n in numbers])
    knee = knee_of(numbers, rates)
    assert [shape["x0"] for shape in block.figure.layout.shapes] == ([] if knee is None else [knee])
    assert "perfmodel plan --again" in block.how_to_read


def test_one_number_of_gpus_scales_nothing() -> None:
    assert isinstance(plan_scaling(sizes([4]), ""), Missing)
    assert isinstance(plan_scaling(sizes([16, 32], None), ""), Missing)
