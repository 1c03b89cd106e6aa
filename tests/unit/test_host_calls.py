"""Times of the host: from samples of rounds to a calibration, and from there to ``--host``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import own_run
import pytest

from calibrate.operations import Availability
from calibrate.planning.host_cells import CALLS, host_points
from calibrate.planning.measurement_plan import Request, make_plan
from calibrate.planning.world import World
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.fit.host_calls import fit_host
from perfmodel.fit.runs import fit_run
from perfmodel.projections import project_one
from perfmodel.projections.hosted import host_costs, hosted
from perfmodel.report.host_text import host_table
from perfmodel.schema.calibration import read_calibration, save_calibration
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import load_machine
from perfmodel.schema.run_files import Run
from perfmodel.schema.runs import Finish, Point, RunHeader, Status, Visit

H100 = "h100-sxm-ib"
TRUE_S = {"python_calls": 0.1e-6, "operator_calls": 2e-6, "kernel_calls": 5e-6, "graph_calls": 8e-6}
COLD = 1.2
"""A short round, over a long one."""


def world(device: str = "cuda", torch: bool = True) -> World:
    return World(ranks=1, device=device, providers={"torch": Availability(torch, operations=())})


def run_of(points: list[tuple[Point, float]], **header: Any) -> Run:
    known = {"fingerprint": "0" * 16, "started_at": "now", "machine": H100, "ranks": 1, "nodes": 1}
    made = Run(RunHeader(**{**known, "stack": {"cpu": "a CPU"}, **header}), {}, {}, {})
    for point, time_s in points:
        made.points[point.key] = point
        made.visits[point.key] = [Visit(key=point.key, round=0, at="now", times_s=[time_s], checked=1)]
        made.finishes[point.key] = Finish(key=point.key, status=Status.OK, median_s=time_s)
    return made


def timed(device: str = "cuda") -> list[tuple[Point, float]]:
    """Short rounds take 1.2 times as long a call as long ones."""
    found = []
    for point in host_points(world(device), "quick"):
        if point.operation not in CALLS:
            continue
        assert point.work is not None
        calls, first = point.work.batch, CALLS[point.operation][0]
        found.append((point, calls * TRUE_S[point.operation] * (COLD if calls == first else 1.0)))
    return found


def test_a_plan_has_the_host_on_gpus_and_on_cpus() -> None:
    assert {p.operation for p in host_points(world(), "quick")} >= set(CALLS)
    assert {p.operation for p in host_points(world("cpu"), "quick")} == {"python_calls", "operator_calls"}
    assert host_points(world(torch=False), "quick") == []
    plan = make_plan(Request(only=["host:graph_calls"]), world())
    assert [p.work.batch for p in plan.points if p.work] == list(CALLS["graph_calls"])
    with pytest.raises(BadInputError, match="host:"):
        make_plan(Request(only=["host:graphs"]), world())


def test_times_of_single_calls_come_back() -> None:
    found = fit_host(run_of(timed()))
    assert found is not None and found.processor == "a CPU" and found.sample_count == 8
    middle = COLD**0.5
    for key, true_s in (("host_call_s", 0.1e-6), ("host_operator_s", 2e-6), ("graph_launch_s", 8e-6)):
        one = found.values[key]
        assert one.value == pytest.approx(true_s * middle, rel=1e-3)
        assert one.low < true_s < true_s * COLD < one.high
    launch = np.sqrt((5 * COLD - 2 * middle) * (5 - 2 * middle)) * 1e-6
    assert found.values["host_launch_s"].value == pytest.approx(launch, rel=1e-3)
    assert "host_collective_s" not in found.values
    assert fit_host(run_of([])) is None


def test_eager_calls_of_nccl_tell_a_collective() -> None:
    point = {"kind": "collective", "operation": "all_to_all", "backend": "nccl", "clock": "eager", "gpus": 2}
    sizes = {1024: 20e-6, 2**20: 45e-6, 2**26: 2e-3}
    points = [
        (Point.model_validate({**point, "gpus_per_node": 2, "payload_bytes": size}), time_s)
        for size, time_s in sizes.items()
    ]
    found = fit_host(run_of([*timed(), *points], ranks=2))
    assert found is not None
    assert found.values["host_collective_s"].value == pytest.approx(30e-6)  # of 20 and 45: not of 64 MiB
    on_cpus = [(p.model_copy(update={"backend": "mpi"}), t) for p, t in points]
    assert "host_collective_s" not in fit_host(run_of([*timed(), *on_cpus], ranks=2)).values  # type: ignore[union-attr]


def test_a_projection_takes_the_times_of_its_calibration(tmp_path: Path) -> None:
    (calibration,) = fit_run(run_of(timed()), load_machine(H100))
    file = tmp_path / "mine.json"
    save_calibration(calibration, file)
    assert read_calibration(file).host == calibration.host
    shipped, own = host_costs("eager"), host_costs("eager", str(file))
    assert own.call_s == pytest.approx(0.1e-6 * COLD**0.5, rel=1e-3)
    assert own.call_s < shipped.call_s
    assert own.collective_s == shipped.collective_s
    assert own.known["host_operator_s"] is Evidence.MEASURED
    assert own.evidence is Evidence.TRANSFERRED  # nobody timed a collective
    assert own == host_costs(f"eager:{file}") == host_costs(f"eager:{tmp_path}")
    low, high = (host_costs("eager", str(file), end).operator_s for end in (-1, 1))
    narrow = [host_costs("eager", end=end).operator_s for end in (-1, 1)]
    assert 1 < high / low < narrow[1] / narrow[0]
    answer = project_one(table_bytes=10e12, calibration=str(file))
    here, there = hosted(answer, "eager", str(file)), hosted(answer, "eager")
    assert here.host_s < there.host_s and here.time_s < there.time_s
    assert here.high_s - here.low_s < there.high_s - there.low_s
    assert "your own run: Python calls, operators, launches)" in " ".join(
        host_table(here, "row-wise").split()
    )
    assert "own run" not in host_table(there, "row-wise")
    graph = host_costs("graph", str(file))
    assert graph.stretch_s == pytest.approx(8e-6 * COLD**0.5, rel=1e-3)
    assert graph.evidence is Evidence.MEASURED


def test_a_run_that_did_not_time_the_host(tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores")
    with pytest.raises(NoCalibrationError, match="no times of the host"):
        host_costs(f"eager:{folder}")
    with pytest.raises(BadInputError, match="no run after the colon"):
        host_costs("eager:")
    with pytest.raises(BadInputError, match="lazy"):
        host_costs("lazy:latest")
