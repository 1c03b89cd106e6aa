"""A training step in projections: its limits, its memory, and what a person reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dealt_plan import uniform_plan

from perfmodel.answer import project_one, project_row_wise
from perfmodel.answer.ranking import plan_shardings, rank_shardings
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.question import plan_quickly

TRAINING = {"objective": "training"}
BOX, MODEL = "h100-sxm-ib", "mlperf-dlrm-dcnv2"


def test_on_one_gpu_a_training_step_is_the_local_step() -> None:
    found = project_row_wise(table_bytes=[1e9, 10e9], gpus=1, batch=[64, 4096], **TRAINING)
    for name in ("slowdown", "slowdown_low", "slowdown_high"):
        assert found[name].tolist() == [1, 1]
    assert (
        found["time_s"] > project_row_wise(table_bytes=[1e9, 10e9], gpus=1, batch=[64, 4096])["time_s"]
    ).all()


def test_the_local_step_is_the_plan_on_one_gpu() -> None:
    answer = project_one(tables="criteo-kaggle", gpus=8, batch=2048, **TRAINING)
    tables = PlanTables.load("criteo-kaggle")
    evaluator = Evaluator.on(BOX, tables, 2048, 1, training=True, optimizer="rowwise-adagrad")
    alone = evaluator.cost(uniform_plan(tables, "table-wise", 1, 1)).cost
    low, high = (answer.totals[f"baseline_{end}_s"] for end in ("low", "high"))
    assert (answer.baseline_time_s, low, high) == pytest.approx((alone.time_s, alone.low_s, alone.high_s))
    assert set(answer.local) == {"kernels", "sorts"}


@pytest.mark.parametrize(("gpus", "digits", "rows"), [(1, 4, 2**25), (16, 3, 2**21), (4096, 2, 2**13)])
def test_ids_are_local_so_a_rank_sorts_the_digits_of_its_own_rows(gpus: int, digits: int, rows: int) -> None:
    """Two tables of 2^24 rows over G ranks: 2^25 / G rows of a rank."""
    assert rows == 2**25 // gpus
    size = 2 * 2**24 * 128
    found = project_one(table_bytes=size, table_count=2, gpus=gpus, **TRAINING)
    (sort,) = (step for step in found.steps if step.name == "sort_lookups")
    lookups = found.work.batch[0] * 32 * 2
    assert sort.payload_bytes == pytest.approx(lookups * (8 + 2 * digits * (8 + 4)))
    assert plan_shardings(found).evaluator.model.sort_digits == digits


@pytest.mark.parametrize(
    ("optimizer", "state"), [("none", 0), ("rowwise-adagrad", 4), ("adagrad", 128), ("adam", 256)]
)
def test_the_state_of_the_optimizer_takes_memory_beside_the_rows(optimizer: str, state: int) -> None:
    """Rows of 32 fp32 elements: 128 bytes, and numbers of 4 bytes for each element or row."""
    count = project_one(table_bytes=10e12, optimizer=optimizer, **TRAINING).gpu_count
    assert count.optimizer_bytes == pytest.approx(count.rows_bytes * state / 128)
    assert count.fits and count.gpus % 8 == 0
    fewer = project_one(table_bytes=10e12, optimizer=optimizer, gpus=count.gpus - 8, **TRAINING)
    assert not fewer.gpu_count.fits
    all_bytes = 10e12 * (1 + state / 128)
    assert count.needed == count.for_rows == np.ceil(all_bytes / count.usable_bytes)
    assert (
        project_row_wise(table_bytes=[10e12], optimizer=optimizer, **TRAINING)["gpus_needed"][0]
        == count.needed
    )
    assert f"{all_bytes / count.usable_bytes:.4g}" in str(count)
    assert ("of optimizer state" in str(count)) == bool(state)
    filled = project_one(gpus=16, optimizer=optimizer, **TRAINING).gpu_count
    assert filled.memory_bytes == pytest.approx(filled.usable_bytes, rel=1e-3)


def test_every_way_to_shard_is_compared_as_a_training_step() -> None:
    found = rank_shardings(project_one(tables=MODEL, gpus=16, **TRAINING))
    assert found.best and all("update_rows" in {s.name for s in each.steps} for each in found.best)
    planned = plan_quickly(found)
    assert planned is not None and planned.time_s < found.answer.time_s
    assert "update_rows" in {row.name for row in planned.steps}
    assert planned.baseline_time_s == found.answer.baseline_time_s and planned.fits


@pytest.mark.parametrize(
    ("options", "named"),
    [({"objective": "trainin"}, "did you mean training"), ({"optimizer": "adamm"}, "did you mean adam")],
)
def test_what_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError) as caught:
        project_one(table_bytes=10e12, **{**TRAINING, **options})
    assert named in str(caught.value)
