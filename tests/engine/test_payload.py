"""Bags in another precision: a projection has the steps of a plan, and bytes that divide by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfmodel.answer import Answer, Question, project_one
from perfmodel.answer.ranking import answer_question
from perfmodel.cli import run
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import StepRow
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError

TABLES = PlanTables.load("mlperf-dlrm-dcnv2")
KINDS = {"nccl": Exchange.RS, "nvshmem": Exchange.RB}
"""The exchange of bags of a row-wise pass, by library."""
KIB, MIB = 2**10, 2**20


def steps(answer: Answer) -> dict[str, StepRow]:
    return {step.name: step for step in answer.steps}


@pytest.mark.parametrize("payload", ["fp32", "fp16", "fp8"])
@pytest.mark.parametrize("gpus", [8, 64])
@pytest.mark.parametrize("backend", KINDS)
def test_a_row_wise_plan_has_the_steps_of_the_projection(backend: str, gpus: int, payload: str) -> None:
    machine = "h200-sxm-ib"
    evaluator = Evaluator.on(machine, TABLES, 1024, gpus, payload=payload, backend=backend)
    whole = Placement.of(Scheme(KINDS[backend], gpus), range(gpus))
    copy = Placement.of(Scheme(Exchange.DP))
    placements = tuple(whole if rows >= gpus else copy for rows in TABLES.rows)
    found = evaluator.cost(Plan(TABLES, placements, gpus, evaluator.domain))
    asked = {"tables": TABLES.model, "machine": machine, "gpus": gpus, "backend": backend}
    wanted = project_one(**asked, payload=payload)
    assert [row.name for row in found.rows] == [step.name for step in wanted.steps]
    for row, step in zip(found.rows, wanted.steps, strict=True):
        close = {name: getattr(step, name) for name in ("time_s", "low_s", "high_s", "floor_s")}
        assert {name: getattr(row, name) for name in close} == pytest.approx(close, rel=1e-12), row.name
        assert row.payload_bytes == pytest.approx(step.payload_bytes, rel=1e-12), row.name
        assert row.evidence == step.evidence, row.name
    assert found.time_s == pytest.approx(wanted.time_s, rel=1e-12)
    assert ("convert_out" in steps(wanted)) == (payload != "fp32")


def test_bytes_by_hand() -> None:
    """B = 1024, D = 32, G = 128, one table: 16 MiB of fp32 bags; 6 bytes an element to convert to fp16."""
    asked: dict[str, Any] = {"table_bytes": 10e12, "reserve": 0, "gpus": 128}
    full, half, quarter = (steps(project_one(**asked, payload=p)) for p in (None, "fp16", "fp8"))
    sizes = [each["reduce_scatter_bags"].payload_bytes for each in (full, half, quarter)]
    assert sizes == [16 * MIB, 8 * MIB, 4 * MIB]
    assert half["convert_out"].payload_bytes == 128 * 1024 * 32 * (4 + 2) == 24 * MIB
    assert half["convert_in"].payload_bytes == 1024 * 32 * (4 + 2) == 192 * KIB
    assert quarter["convert_in"].payload_bytes == 1024 * 32 * (4 + 1) == 160 * KIB
    summed = steps(project_one(**asked, payload="fp16", backend="nvshmem", machine="h200-sxm-ib"))
    assert summed["convert_in"].payload_bytes == 24 * MIB  # all parts come, each in fp16
    assert summed["local_sum"].payload_bytes == 129 * 128 * KIB  # and are added up in fp32
    lengths = {name: half[name] for name in ("all_to_all_lengths", "all_to_all_ids", "gather_pool")}
    for name, step in lengths.items():
        assert step == replace(full[name], share=step.share), name


def test_a_sparse_exchange_keeps_its_positions() -> None:
    """m bags of 32 v + 4 bytes: fp8 is not half of fp16, but for the positions it is."""
    asked: dict[str, Any] = {"table_bytes": 10e12, "reserve": 0, "sharding": "sparse"}
    full, half, quarter = (
        steps(answer_question(Question.of(**asked, payload=p)))["all_to_all_sparse_bags"].payload_bytes
        for p in (None, "fp16", "fp8")
    )
    assert half / full == pytest.approx((64 + 4) / (128 + 4))
    assert quarter / full == pytest.approx((32 + 4) / (128 + 4))


@pytest.mark.parametrize("payload", ["int8", "fp64", "fp4"])
def test_other_precisions_are_refused(payload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["project", "--table-size", "10TB", "--set", f"payload={payload}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"payload '{payload}' is not known" in said and "bf16, fp16, fp32, fp8" in said
    with pytest.raises(BadInputError, match=r"payload '.*' is not known"):
        Evaluator.on("h100-sxm-ib", TABLES, 8, 8, payload=payload)
