"""Kernels of an answer: whose they are, and what finding equal ids costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_laws
import numpy as np
import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.answer import Answer, project_one
from perfmodel.answer.ranking import answer_shardings
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Plan
from perfmodel.engine.settings import load_setting
from perfmodel.engine.steps import STEPS
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.schema.calibration import KernelConstants, KernelFit, save_calibration, shipped_calibration
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.schema.priors import load_kernel_constants

MACHINE = "h100-sxm-ib"
ASKED = {"table_bytes": 1e12, "gpus": 16, "table_count": 4, "batch": 4096}


def constants(implementation: str, rate: float) -> KernelConstants:
    interval = Interval(value=rate, low=rate / 2, high=rate * 2)
    fit = KernelFit(log_sd=0.1, sample_count=9, loo_median=0.1, loo_p90=0.2, low_bytes=1, high_bytes=1e12)
    return KernelConstants(
        values={"gather_bytes_per_s": interval},
        fits={"gather_pool": fit},
        implementation=implementation,
        clock=Clock.STREAM,
    )


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """A shipped calibration with kernels of FBGEMM at 2 TB/s and of this project at 3."""
    shipped = shipped_calibration(f"{MACHINE}/nccl-2.29.2-stream")
    own = shipped.model_copy(
        update={"kernels": constants("fbgemm", 2e12), "more_kernels": [constants("perfmodel", 3e12)]}
    )
    path = tmp_path / "mine.json"
    save_calibration(own, path)
    return path


def answer(**options: object) -> Answer:
    return project_one(machine=MACHINE, **ASKED, **options)


def gather_rate(p: Answer) -> float:
    return p.setting.machine.value("gather_bytes_per_s")


def test_unasked_it_is_fbgemms_and_the_machine_files() -> None:
    plain = answer()
    assert plain.setting.kernel_library == "fbgemm"
    assert gather_rate(plain) == load_machine(MACHINE).value("gather_bytes_per_s")
    assert answer(kernels="fbgemm").time_s == plain.time_s


def test_torchs_published_rate_is_a_part_of_the_datasheets() -> None:
    """0.406 of 3.35 TB/s; slower look-ups in local memory too."""
    torch = answer(kernels="torch")
    assert gather_rate(torch) == pytest.approx(0.406 * 3.35e12)
    assert torch.setting.machine.quantity("gather_bytes_per_s").evidence is Evidence.TRANSFERRED
    assert torch.time_s > answer().time_s and torch.baseline_time_s > answer().baseline_time_s


def test_kernels_that_nobody_timed_have_no_answer() -> None:
    with pytest.raises(NoCalibrationError, match=r"there are no times of perfmodel kernels on h100-sxm-ib"):
        answer(kernels="perfmodel")
    with pytest.raises(BadInputError, match=r"kernels 'cuembed' is not known"):
        answer(kernels="cuembed")


def test_a_calibration_has_those_that_were_timed(timed: Path) -> None:
    known = {name: answer(calibration=timed, kernels=name) for name in ("fbgemm", "perfmodel")}
    assert [gather_rate(p) for p in known.values()] == [2e12, 3e12]
    assert gather_rate(answer(calibration=timed)) == 2e12
    with pytest.raises(NoCalibrationError, match=r"has no kernels of torch; it has fbgemm, perfmodel"):
        answer(calibration=timed, kernels="torch")


def test_the_command_takes_the_option_and_explain_too(cli: Callable[..., Outcome]) -> None:
    words = ["--table-size", "1TB", "--set", "kernels=torch", "--sharding", "row-wise"]
    said = json.loads(cli("project", *words, "--json").out)["kernels"]
    assert said["implementation"] == "torch" and not said["timed"]
    told = cli("project", *words, "--explain", "gather")
    assert told.code == 0 and "2410.22249" in told.out
    shown = cli("project", *words, "-v")
    assert "kernels  torch" in shown.out and shown.out.count("--set kernels=torch") == 1
    is_an_error(cli("project", "--table-size", "1TB", "--set", "kernels=perfmodel"), 3, "perfmodel calibrate")


def ways(gpus: int = 152, **asked: Any) -> Any:
    return list(answer_shardings(project_one(machine=MACHINE, table_bytes=10e12, gpus=gpus, **asked)))


def test_constants_are_those_of_the_shipped_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    """``benchmarks/kernel_laws.py`` prints what ``data/kernels/kernel_model.toml`` has."""
    kernel_laws.main()
    said, constants = capsys.readouterr().out, load_kernel_constants()
    for name, keys in (
        ("sort", ("floor_s", "digit_s")),
        ("torch_unique", ("floor_s",)),
        ("hash", ("floor_s",)),
    ):
        line = next(line for line in said.splitlines() if line.startswith(name))
        numbers = [float(x) for x in re.findall(r"[\d.]+", line)]
        known = [1e6 * constants[f"{name}_{key}"].value for key in keys]
        known += [constants[f"{name}_memory_fraction"].value]
        assert numbers == pytest.approx(known, rel=1e-3), name
    errors = [float(x) for x in re.findall(r"([\d.]+) % \(median\)", said)]
    assert np.all(np.less(errors, [10, 6.5, 5, 20, 40]))


@pytest.mark.parametrize(
    ("batch", "hash_s", "unique_s"),
    # 27.6 us + n 200 / (0.344 3.35 TB/s), and 205.6 us + n 200 / (0.28 3.35 TB/s) of 32 ids a sample
    [(1024, 33.3e-6, 212.6e-6), (16_384, 118.6e-6, 317.4e-6)],
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
    tables = found.costed.plan.tables
    evaluator = Evaluator.on(MACHINE, tables, 1024, 152, training=True)
    assert evaluator.model.sort_digits == 4  # 78 125 M rows / 152 = 514 M: 29 bits
    plan = Plan(tables, found.costed.plan.placements, 152, evaluator.domain)
    rows = {row.name: row for row in evaluator.cost(plan).cost.rows}
    for name, alone in (("deduplicate", False), ("deduplicate_requests", False), ("sort_lookups", True)):
        floor, rate = evaluator.basis.list_sorts(4, alone=alone)[1]
        assert rows[name].time_s == pytest.approx(floor + rows[name].payload_bytes / rate)
    assert evaluator.basis.list_sorts(4, alone=True)[1][0] == pytest.approx(14.9e-6 + 4 * 11.2e-6)
    loads = evaluator.loads(plan).max(axis=1)
    assert float(evaluator.times.estimate(loads)) == pytest.approx(evaluator.time_passes(loads)[0], rel=2e-3)


@pytest.mark.parametrize(("evidence", "most"), [("datasheet", 2e12), ("assumed", 2e12), ("measured", 9e12)])
def test_a_fitted_rate_is_at_most_that_of_the_memory(timed: Path, evidence: str, most: float) -> None:
    """Of 9 TB/s where caches helped, of a memory of 2; copies that were timed limit no other kernel."""
    own = json.loads(timed.read_text()) | {"kernels": constants("fbgemm", 9e12).model_dump(mode="json")}
    timed.write_text(json.dumps(own))
    machine, moved = load_machine(MACHINE), np.array([1e6, 1e9])
    update = {"value": 2e12, "evidence": Evidence(evidence)}
    memory = machine.quantity("hbm_bytes_per_s").model_copy(update=update)
    machine = machine.model_copy(update={"values": machine.values | {"hbm_bytes_per_s": memory}})
    basis = PassBasis(load_setting(machine, "nccl", calibration=timed))
    timing = basis.time_kernel("gather_pool", moved, 0 * moved)
    assert timing.time_s == pytest.approx(basis.numbers["launch_floor_s"] + moved / most)
    assert (timing.low_s < timing.time_s).all()


@pytest.mark.parametrize("name", list_machines())
def test_no_low_end_of_a_kernel_is_faster_than_the_memory(name: str) -> None:
    machine, moved = load_machine(name), 2.0 ** np.arange(16, 37)
    basis = PassBasis(load_setting(machine, str(machine.defaults.backend)))
    streams = ("bucketize", None), ("local_sum", None)
    for kernel, l2 in (("gather_pool", moved), ("gather_pool", 4 * moved), *streams):
        low_s = basis.time_kernel(kernel, moved, l2).low_s
        assert (low_s >= moved / machine.value("hbm_bytes_per_s") * (1 - 1e-9)).all()
