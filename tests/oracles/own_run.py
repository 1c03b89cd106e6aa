"""A made-up run on a host of four cores: every time follows from constants that are written here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from oracles.points import make_collective, make_kernel, make_pass
from perfmodel.answer import project_row_wise
from perfmodel.collectives.estimate import Libraries
from perfmodel.collectives.timings import Timing
from perfmodel.engine.settings import Setting
from perfmodel.fit.host import machine_text
from perfmodel.model.curves import hockney_time
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import MACHINE_NAME, SAMPLES_NAME
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_kernel_constants
from perfmodel.schema.run_files import Run
from perfmodel.schema.runs import Finish, LookupWork, Point, PointKind, PointLine, RunHeader, Status, Visit

HEADER = RunHeader(
    fingerprint="0123456789abcdef", started_at="2026-01-02T03:04:05Z", machine="four-cores", ranks=4, nodes=1,
    stack={"mpi": "Open MPI v5.0.11", "gloo": "2.13", "cpu": "a CPU", "caches": "L1 32768, L2 1048576"},
)  # fmt: skip
KERNELS = {
    "launch_floor_s": 4e-6, "gather_bytes_per_s": 8e9, "l2_bytes_per_s": 24e9, "row_access_bytes": 200.0,
    "bag_factor": 1.4, "bucketize_floor_s": 20e-6, "bucketize_bytes_per_s": 1e9,
}  # fmt: skip
ALPHA_S, BETA, P = 2e-6, 4e9, 1.2
IN_PASS_S = {"all_to_all_splits": 3e-6, "all_to_all_lengths": 1e-6, "all_to_all_ids": 2e-6}
IN_PASS_S["reduce_scatter_bags"] = 4e-6
"""What a step takes longer in a pass than alone."""
BETWEEN_S = 5e-6
SLOWER = {"bucketize": 1.5, "gather_pool": 1.1}
"""Kernels in a pass over kernels in a loop."""
SIZES = [128 * 8**k for k in range(7)]
CELLS = ((64, 1, 4, 32), (128, 2, 10, 64), (256, 1, 30, 128))
CELLS += ((512, 4, 2, 32), (1024, 1, 16, 96), (100, 8, 7, 48))
PASSES = [LookupWork(batch=b, tables=t, pooling=pooling, dim=d, rows=400_000) for b, t, pooling, d in CELLS]


def machine_from_run(run: Run, memory_bytes: float | None = None) -> Machine:
    return Machine.model_validate(tomllib.loads(machine_text(run, memory_bytes)))


@cache
def truth() -> Machine:
    """The host, with the constants of this page."""
    machine = machine_from_run(Run(HEADER, {}, {}, {}), 8e9)
    machine = machine.with_overrides({**KERNELS, "pcie_bytes_per_s": 1e12})
    return machine.unchanged().model_copy(update={"values": machine.values})


class Fabric:
    """Every collective follows the one curve of this page."""

    clock, calibration_id = Clock.EAGER, "truth"

    def estimate(self, collective: str, payload: Any, gpus: Any, gpus_per_node: Any = None) -> Timing:
        payload, gpus = np.broadcast_arrays(np.asarray(payload, float), np.asarray(gpus, float))
        time, code = hockney_time(payload, ALPHA_S, BETA, P), np.zeros(payload.shape, np.int8)
        floor = np.full(time.shape, ALPHA_S)
        return Timing(time, time, time, floor, code, code, ("",), code, ("fabric",))


def project(work: LookupWork, gpus: int) -> dict[str, float]:
    """Times of a projection with the constants of this page [s]."""
    setting = Setting(truth(), Libraries({"mpi": Fabric()}), load_kernel_constants(), "mpi")
    frame = project_row_wise(
        None, truth(), setting=setting, table_bytes=4.0 * work.tables * work.rows * work.dim, gpus=gpus,
        batch=work.batch, dim=work.dim, table_count=work.tables, pooling=work.pooling,
    )  # fmt: skip
    return {str(name): float(frame[name].iloc[0]) for name in frame.columns if str(name).endswith("_s")}


def collectives() -> Iterator[tuple[Point, float]]:
    for operation, gpus, size in product(("all_to_all", "reduce_scatter", "all_reduce"), (2, 4), SIZES):
        point = make_collective(operation, gpus, backend="mpi", payload_bytes=size)
        yield point, float(hockney_time(size, ALPHA_S, BETA, P))


@cache
def kernels() -> tuple[tuple[Point, float], ...]:
    works = [
        LookupWork(batch=batch, pooling=2 if batch == 1024 else 8, dim=dim, rows=rows)
        for dim, rows, batch in product((16, 32, 64, 128), (1_000, 1_000_000), (16, 128, 1024, 8192))
    ]
    timed = [("gather_pool", 0, work, project(work, 1)["baseline_time_s"]) for work in works]
    copies = {2**16: 12e9, 2**26: 11e9, 2**27: 10e9}  # bytes, and bytes/s
    timed += [("copy", n, LookupWork(batch=1, dim=n // 2), n / rate) for n, rate in copies.items()]
    return tuple(
        (make_kernel(operation, 4, implementation="torch", payload_bytes=count, work=work), time_s)
        for operation, count, work, time_s in timed
    )


def passes() -> Iterator[tuple[Point, dict[str, float]]]:
    """Whole passes with their steps under the names of our exchange; the last three are held out."""
    for index, work in enumerate(PASSES):
        times = project(work, 2)
        steps = {
            name: times[f"{name}_time_s"] * SLOWER.get(name, 1.0) + IN_PASS_S.get(name, 0.0)
            for name in ("bucketize", *IN_PASS_S, "gather_pool")
        }
        steps["reduce_scatter"] = steps.pop("reduce_scatter_bags")
        yield make_pass(2, backend="mpi", implementation="exchange", work=work, held_out=index >= 3), steps


def lines(noise: float = 0.0, seed: int = 1, held_out_factor: float = 1.0) -> Iterator[Any]:
    """Every line of the run: four visits a point; ``held_out_factor`` makes the model wrong."""
    rng = np.random.default_rng(seed)

    def visits(point: Point, time: float, steps: dict[str, float]) -> Iterator[Any]:
        yield PointLine(key=point.key, point=point)
        for number in range(4):
            factor = float(np.exp(rng.normal(0, noise)))
            yield Visit(
                key=point.key, round=number, at="2026-01-02T03:04:06Z", times_s=[time * factor],
                checked=0 if point.kind is PointKind.KERNEL else 8,
                steps_s={name: [value * factor] for name, value in steps.items()},
            )  # fmt: skip
        yield Finish(
            key=point.key, status=Status.OK, median_s=time, low_s=time, high_s=time, visits=4, calls=4
        )

    yield HEADER
    for point, time in (*collectives(), *kernels()):
        yield from visits(point, time, {})
    for point, steps in passes():
        factor = held_out_factor if point.held_out else 1.0
        yield from visits(point, (sum(steps.values()) + BETWEEN_S) * factor, steps)


def write_run(folder: Path, **options: Any) -> Path:
    """The run's folder with its samples, its machine file and its calibrations."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _files(**options).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@cache
def _files(**options: Any) -> dict[str, str]:
    """Name and text of each file of the folder: a run is fitted once, whoever wants its folder."""
    from perfmodel.fit.run_fits import fit_run
    from perfmodel.schema.calibration import save_calibration
    from perfmodel.schema.machine import read_machine
    from perfmodel.schema.run_files import read_run

    with TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        text = "".join(line.model_dump_json() + "\n" for line in lines(**options))
        (folder / SAMPLES_NAME).write_text(text, encoding="utf-8")
        run = read_run(folder)
        (folder / MACHINE_NAME).write_text(machine_text(run, 8e9), encoding="utf-8")
        for calibration in fit_run(run, read_machine(folder / MACHINE_NAME)):
            name = calibration.calibration_id.rpartition("/")[2]
            save_calibration(calibration, folder / f"{name}.json")
        return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
