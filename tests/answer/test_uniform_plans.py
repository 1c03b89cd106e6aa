"""Shardings side by side: row-wise is the projection, what cannot be says why, the bytes add up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dealt_plan import uniform_plan

from perfmodel.answer import Answer, project_one
from perfmodel.answer.answer import answer_plan
from perfmodel.answer.ranking import answer_shardings, plan_shardings
from perfmodel.answer.uniform_plans import Impossible, UniformPlan, UniformPlans, list_schemes
from perfmodel.cli import run
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import deal_shards, find_lightest
from perfmodel.engine.schemes import WAYS
from perfmodel.engine.settings import BETWEEN, Handover, load_setting
from perfmodel.engine.tables import PlanTables
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"
ROUND = {"hbm_bytes": 80e9}
"""GPUs of 80 GB: numbers of bytes divide."""
QUESTIONS: list[dict[str, Any]] = [
    {"table_bytes": 10e12, "reserve": 0},
    {"table_bytes": 4e12, "table_count": 26, "dim": 128, "pooling": 4},
    {"tables": "mlperf-dlrm-dcnv2", "gpus": 16},
    {"tables": "embark-t7", "gpus": 64, "gpus_per_node": 4},
    *({"machine": "h200-sxm-ib", "backend": library, "gpus": 64} for library in ("nvshmem", "best")),
]
NAMES = [" ".join(str(value) for value in question.values()) for question in QUESTIONS]


@pytest.fixture(scope="module", params=QUESTIONS, ids=NAMES)
def base(request: pytest.FixtureRequest) -> Answer:
    return project_one(**request.param)


def test_schemes_of_each_way() -> None:
    def parts(way: str, gpus: int, domain: int, dim: int) -> list[tuple[int, int]]:
        return [(s.row_parts, s.col_parts) for s in list_schemes(way, gpus, domain, dim)]

    assert parts("column-wise", 24, 8, 32) == [(1, 2), (1, 4), (1, 8)]
    assert parts("table-column-wise", 24, 8, 32) == [(1, 2), (1, 4), (1, 8)]
    assert parts("grid", 24, 8, 32) == [(8, 2)]
    assert parts("grid", 24, 8, 96) == [(8, 2), (8, 3)]
    assert parts("column-wise", 20, 4, 96) == [(1, 2), (1, 4), (1, 8), (1, 12)]
    assert parts("grid", 8, 8, 32) == []
    assert parts("row-wise-sparse", 24, 8, 32) == [(24, 1)]
    assert parts("3d", 6, 6, 32) == [(2, 1), (4, 1), (6, 1), (2, 2), (3, 2)]
    assert parts("column-wise", 24, 8, 1) == []


def test_row_wise_as_a_plan_is_the_projection(base: Answer) -> None:
    evaluator = plan_shardings(base).evaluator
    found = UniformPlans(evaluator, base.gpu_count.usable_bytes).find_best("row-wise")
    assert isinstance(found, UniformPlan)
    answer = answer_plan(base, found)
    for name, value in answer.totals.items():
        near = 1e-4 if name == "memory_bytes" else 1e-12  # a plan cuts whole rows
        assert value == pytest.approx(base.totals[name], rel=near), name
    assert [(s.name, s.label, s.clock, s.evidence, s.limit) for s in answer.steps] == [
        (s.name, s.label, s.clock, s.evidence, s.limit) for s in base.steps
    ]


def why(base: Answer, way: str) -> str:
    (found,) = answer_shardings(base, [way])
    assert isinstance(found, Impossible)
    return found.explain()


def test_what_is_impossible_says_why() -> None:
    big = project_one(table_bytes=10e12, reserve=0, overrides=ROUND)
    assert why(big, "table-wise") == "one table is 10 TB, larger than a GPU (80 GB)"
    assert why(big, "data-parallel") == "one table is 10 TB, larger than a GPU (80 GB)"
    for way, parts in (("column-wise", "8 column parts"), ("table-row-wise", "8 row parts")):
        assert why(big, way) == f"{parts} of one table are 1.25 TB each, larger than a GPU (80 GB)"
    two = project_one(table_bytes=800e9, table_count=2, dim=8, gpus=16, reserve=0, overrides=ROUND)
    assert why(two, "column-wise") == "2 column parts of one table are 200 GB each, larger than a GPU (80 GB)"
    assert why(two, "data-parallel") == "every GPU would hold 800 GB of tables, and has room for 80 GB"
    nine = project_one(table_bytes=600e9, table_count=9, dim=8, gpus=8, reserve=0, overrides=ROUND)
    # 66.7 GB each: two of them on one GPU
    assert why(nine, "table-wise") == "a GPU would hold 133 GB of tables, and has room for 80 GB"
    assert why(nine, "data-parallel") == "every GPU would hold 600 GB of tables, and has room for 80 GB"
    assert why(nine, "grid") == "all 8 GPUs are in one scale-up domain: that is table-row-wise"


def test_ways_that_these_gpus_or_columns_do_not_allow() -> None:
    twelve = project_one(gpus=12, table_count=5)
    for way in ("grid", "table-row-wise", "row-wise-two-level", "table-column-wise"):
        assert why(twelve, way) == "12 GPUs do not fill scale-up domains of 8 GPUs"
    assert why(project_one(table_bytes=40e9), "column-wise") == "there is one GPU"
    assert (
        why(project_one(gpus=16, dim=1), "column-wise")
        == "rows of less than 8 columns have no parts of 4 or more"
    )


def test_a_table_that_just_fits_is_placed_whole() -> None:
    """79.99 GB of table on 80 GB, and 0.5 MB of buffers: of 80 GB of table nothing is left for them."""
    base = project_one(table_bytes=159.98e9, table_count=2, gpus=2, reserve=0, overrides=ROUND)
    found = next(answer_shardings(base, ["table-wise"]))
    assert isinstance(found, Answer) and found.plan is not None and found.fits
    assert list(found.plan.costed.memory.rows_bytes) == [79.99e9, 79.99e9]
    assert "buffers a GPU would hold" in why(
        project_one(table_bytes=160e9, table_count=2, gpus=2, reserve=0, overrides=ROUND), "table-wise"
    )


def test_unlike_tables_are_dealt_evenly() -> None:
    """Tables of 5, 4, 3, 3, 3 rows on 2 GPUs: the largest first, each to the emptier GPU: 8 and 10."""
    shapes = [Table(f"t{i}", rows, 4, 1.0, "fp32") for i, rows in enumerate((3, 5, 3, 4, 3))]
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("mine", tuple(shapes))), 8, 2)
    found = UniformPlans(evaluator, np.inf).find_best("table-wise")
    assert isinstance(found, UniformPlan)
    assert sorted(found.costed.memory.rows_bytes) == [8 * 16, 10 * 16]
    most = float(found.costed.memory.total_bytes.max())  # with the buffers
    assert isinstance(UniformPlans(evaluator, most).find_best("table-wise"), UniformPlan)
    assert isinstance(UniformPlans(evaluator, most - 1).find_best("table-wise"), Impossible)


def test_small_tables_that_are_copied_and_gpus_without_rows_are_said() -> None:
    base = project_one(tables="mlperf-dlrm-dcnv2", gpus=32)
    cut, whole = answer_shardings(base, ["row-wise-sparse", "table-wise"])
    assert isinstance(cut, Answer) and "tables have fewer rows than 32 row parts" in str(cut.notes)
    assert isinstance(whole, Answer) and "6 of 32 GPUs hold no rows" in str(whole.notes)


@pytest.mark.parametrize(
    "way", ["table-wise", "column-wise", "table-column-wise", "table-row-wise", "grid", "3d"]
)
@pytest.mark.parametrize("counts", [(33,), (16, 9), (5, 40, 3), (16, 16)])
def test_equal_tables_are_dealt_as_one_by_one(way: str, counts: tuple[int, ...]) -> None:
    """In rounds or not: the heaviest first, each to the ranks (or domains) that have the least."""
    gpus, domain, weight = 16, 8, np.array([3.0, 7.0, 5.0])[: len(counts)]
    schemes = list_schemes(way, gpus, domain, 32)[:3]
    cut = [schemes[at % len(schemes)] for at in range(len(counts))]
    kind_of = np.random.default_rng(len(counts)).permutation(np.repeat(np.arange(len(counts)), counts))
    dealt = deal_shards(way, cut, kind_of, weight, gpus, domain)
    held = np.zeros(gpus)
    for at in np.argsort(-weight[kind_of], kind="stable"):
        kind = kind_of[at]
        wanted = find_lightest(way, cut[kind], held, gpus, domain)
        held[wanted] += weight[kind]
        assert dealt[at].scheme == cut[kind] and dealt[at].ranks.tolist() == wanted.tolist()


@pytest.mark.parametrize("way", ["table-wise", "row-wise", "data-parallel"])
def test_fast_times_wait_between_steps_where_any_collective_runs(way: str) -> None:
    """The bytes of the other collectives are 0."""
    times = {BETWEEN: Interval(value=3e-6, low=3e-6, high=3e-6)}
    setting = replace(load_setting(load_machine(MACHINE), "nccl"), handover=Handover(times))
    evaluator = Evaluator(PassBasis(setting), PlanTables.load("mlperf-dlrm-dcnv2"), 100, 16)
    plan = uniform_plan(evaluator.tables, way, 16, evaluator.domain)
    loads = evaluator.loads(plan)
    waits = 0.0 if way == "data-parallel" else 3e-6
    assert evaluator.times.estimate_steps(loads.max(axis=1))[BETWEEN] == waits
    assert float(evaluator.times.estimate(loads.max(axis=1))) == pytest.approx(
        evaluator.step(loads).time_s, rel=1e-3
    )


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["project", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    "question",
    [
        ("--table-size", "2TB", "--objective", "training"),
        ("--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--distribution", "zipf:1.05"),
    ],
    ids=" ".join,
)
def test_each_sharding_that_is_compared_is_the_answer_of_its_name(
    question: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The fastest, the slowest, and those that are not possible."""
    comparison = json.loads(printed(capsys, *question, "--sharding", "all", "--json")[1])
    rows = sorted(comparison["shardings"], key=lambda row: row["time_s"] or 0)
    assert {row["sharding"] for row in rows} == set(WAYS)
    possible = [row for row in rows if row["time_s"]]
    gpus = () if "--gpus" in question else ("--gpus", str(comparison["gpus"]))
    on = (*question, *gpus, "--json")
    for row in (possible[0], possible[-1]):
        one = json.loads(printed(capsys, *on, "--sharding", row["sharding"])[1])
        assert one["time_s"] == pytest.approx(row["time_s"])
    for name in {row["sharding"] for row in rows if not row["time_s"]}:
        code, _, says = printed(capsys, *on, "--sharding", name)
        assert code == 2 and f"{name} is not possible: " in says


def test_what_does_not_fit_stands_after_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """Row-wise has no room for its buffers; partial bags that are sparse need more time, and fit."""
    asked = "--table-size 690GB --gpus 16 --batch 262144 --pooling 8 --tables 64 --sharding all"
    rows = json.loads(printed(capsys, *asked.split(), "--json")[1])["shardings"]
    times = [
        [row["time_s"] for row in rows if row["time_s"] and row["fits"] is fits] for fits in (True, False)
    ]
    assert max(times[0]) > max(times[1])
    text = printed(capsys, *asked.split())[1]
    assert text.index("\n row-wise-sparse ") < text.index("\n row-wise ") < text.index(" (too much) ")


def test_column_parts_are_whole_vectors_of_every_table() -> None:
    """FBGEMM refuses rows of other widths; a narrower table has fewer parts."""
    shapes = [Table("wide", 10**6, 96, 1.0), Table("narrow", 10**6, 20, 1.0), Table("odd", 10**6, 10, 1.0)]
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("mine", tuple(shapes))), 8, 16)
    for way in ("column-wise", "table-column-wise", "grid", "3d"):
        found = UniformPlans(evaluator, np.inf).find_best(way)
        assert isinstance(found, UniformPlan)
        for table, placement in zip(shapes, found.costed.plan.placements, strict=True):
            assert placement.scheme.col_parts == 1 or table.dim % (4 * placement.scheme.col_parts) == 0


@pytest.mark.parametrize("rows", [(4096,) * 4, (4096,) * 32, (4096, 64) * 16])
def test_whether_tables_fit_and_their_time_are_known_before_they_are_dealt(rows: tuple[int, ...]) -> None:
    """On 16 GPUs: a table on some of them, or as many on each."""
    shapes = (Table(f"t{place}", number, 32, 4.0) for place, number in enumerate(rows))
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("mine", tuple(shapes))), 64, 16)
    for way in ("table-wise", "data-parallel", "row-wise", "row-wise-sparse", "row-wise-ub", "column-wise"):
        best = UniformPlans(evaluator, np.inf).find_best(way)
        assert isinstance(best, UniformPlan)
        held = best.costed.fullest_bytes
        bounds, _ = UniformPlans(evaluator, held).bound_times([way])
        assert bounds == {way: pytest.approx(best.costed.time_s)}
        fewer, _ = UniformPlans(evaluator, held * (1 - 1e-5)).bound_times([way])
        assert not fewer or way == "column-wise"  # of which another number of parts may fit


def test_ways_that_are_priced_together_come_out_as_alone() -> None:
    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load("criteo-kaggle"), 1024, 16)
    priced = UniformPlans(evaluator, 68e9)
    priced.bound_times(list(WAYS))
    for way in WAYS:
        alone, together = UniformPlans(evaluator, 68e9).find_best(way), priced.find_best(way)
        assert isinstance(alone, UniformPlan) and isinstance(together, UniformPlan)
        assert (together.scheme, together.costed.time_s) == (alone.scheme, alone.costed.time_s)
