"""Dense layers beside a plan: what --dense says, and the whole step."""

from __future__ import annotations

from pathlib import Path

import pytest
from dealt_plan import uniform_plan

from perfmodel.cli.plan import parse_dense
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import Dense, GivenTime, WholeStep
from perfmodel.errors import BadInputError
from perfmodel.model.dense import compute_step_time
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import DenseFile, load_dense
from perfmodel.schema.workload import Table, TableSet

H100 = "h100-sxm-ib"
FLOOR, RATE = (load_machine(H100).value(name) for name in ("launch_floor_s", "local_sum_bytes_per_s"))
MINE = (
    'name = "mine"\nbottom = [2, 3]\ntop = [5, 1]\nrank = 4\nlayers = 2\ngradient_bytes = 4\nsource = "me"\n'
)


pytestmark = pytest.mark.usefixtures("once")


def costed(training: bool, gpus: int = 16, batch: int = 1024) -> CostedPlan:
    """One table of 64 elements, row-wise."""
    tables = PlanTables.of(TableSet("mine", (Table("a", 10**6, 64, 10.0, "fp32"),)))
    evaluator = Evaluator.on(H100, tables, batch, gpus, training=training)
    return evaluator.cost(uniform_plan(tables, "row-wise", gpus, min(gpus, 8)))


def whole(training: bool, layers: DenseFile | GivenTime, gpus: int = 16) -> WholeStep:
    plan = costed(training, gpus)
    return WholeStep.compute(plan, Dense.compute(layers, plan.evaluator))


def test_a_name_a_file_and_a_time(tmp_path: Path) -> None:
    assert parse_dense("dlrm-dcnv2", H100) == load_dense("dlrm-dcnv2")
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    mine = parse_dense(str(path), H100)
    assert isinstance(mine, DenseFile) and (mine.name, mine.gradient_bytes) == ("mine", 4)
    assert parse_dense("3ms", H100) == GivenTime(0.003)
    assert parse_dense("3ms±10%", H100) == parse_dense("3ms +- 0.1", H100) == GivenTime(0.003, 0.1)
    assert [parse_dense(text, H100) for text in ("1ns", ".5h", "+1h")] == [
        *map(GivenTime, (1e-9, 1800, 3600))
    ]


def test_a_file_has_weights_to_reduce_and_a_time_has_none() -> None:
    """2 x 3 of the bottom, twice 2 x 67 x 4 of cross layers, 67 x 5 and 5 x 1 of the top; 4 bytes each."""
    layers = DenseFile(
        name="mine", bottom=(2, 3), top=(5, 1), rank=4, layers=2, gradient_bytes=4, source="a test"
    )
    dense = Dense.compute(layers, costed(True).evaluator)
    assert dense.reduced_bytes == 4 * (6 + 2 * 2 * 67 * 4 + 67 * 5 + 5)
    given = Dense.compute(GivenTime(0.003), costed(True).evaluator)
    assert given.times == {"top": pytest.approx(0.001), "top_backward": pytest.approx(0.002)}
    assert given.reduced_bytes == 0
    assert Dense.compute(GivenTime(0.003), costed(False).evaluator).times == {"top": 0.003, "top_backward": 0}


@pytest.mark.parametrize(
    "text",
    [
        *("", "dlrm", "15", "15MB", "-3ms", "0s", "nothing.toml", "32MFLOP", "2h"),
        *("3ms±200%", "3ms±-5%", "3ms±"),
    ],
)
def test_what_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_dense(text, H100)
    assert caught.value.next_step


def test_a_machine_without_a_rate_takes_a_time_alone() -> None:
    assert parse_dense("3ms", "my-box") == GivenTime(0.003)
    with pytest.raises(BadInputError, match=r"my-box") as caught:
        parse_dense("dlrm-dcnv2", "my-box")
    assert "--dense 3ms" in caught.value.next_step


@pytest.mark.parametrize("training", [True, False])
def test_the_numbers_of_a_step_add_up(training: bool) -> None:
    step = whole(training, GivenTime(0.003))
    assert step.dense.time_s == pytest.approx(0.003)
    assert 0 <= step.exposed_s <= step.communication_s < step.parts.serial_time
    assert step.low_s <= step.step_s <= step.high_s
    assert step.parts.dense_reduce == 0 == step.parts.dense_update
    kernels = step.parts.serial_time - step.communication_s
    assert step.step_s == pytest.approx(kernels + step.exposed_s)
    assert step.step_s == compute_step_time(step.parts, training=training)


def test_gradients_are_reduced_where_there_are_other_gpus() -> None:
    layers = load_dense("dlrm-dcnv2")
    step = whole(True, layers)
    assert step.parts.dense_reduce > 0
    assert whole(False, layers).parts.dense_reduce == 0 == whole(False, layers).parts.dense_update
    assert step.parts.dense_update == pytest.approx(step.dense.weights * (2 + 2 + 8) / RATE + FLOOR)
    alone = whole(True, layers, gpus=1)
    assert alone.communication_s == 0 == alone.parts.dense_reduce
    assert alone.parts.dense_update > 0 and alone.step_s == pytest.approx(alone.parts.serial_time)
